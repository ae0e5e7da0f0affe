#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/commands.h"
#include "job/replay.h"

namespace starling {

int replay_command(const Arguments& arguments, const Environment& environment) {
  ReplayRunOptions options;
  options.settings = arguments.settings;
  options.timing_seed = arguments.timing_seed;
  options.out = stderr;
  options.progress = progress_on_stderr(environment, !arguments.no_progress);
  const ReplayResult result = replay_run(arguments.target, options);
  fmt::print(
      "replayed       {} updates of {} gradients, {} dropped; {} worker{}, {} stretch{}, "
      "{:.1f} s\n",
      result.updates, result.gradients, result.dropped, result.workers,
      result.workers == 1 ? "" : "s", result.stretches, result.stretches == 1 ? "" : "es",
      result.seconds);
  fmt::print("the run        {}\nthis replay    {}\n", result.recorded_sha256,
             result.weights_sha256);
  fmt::print("bits           {}\n", result.is_same()        ? "the same"
                                    : result.same_weights() ? "DIFFERENT: not the weights, but "
                                                              "running statistics"
                                                            : "DIFFERENT");
  return result.is_same() ? kExitDone : kExitDifferent;
}

}  // namespace starling
