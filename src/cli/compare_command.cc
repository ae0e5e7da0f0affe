#include <fmt/format.h>
#include <unistd.h>

#include "base/say.h"
#include "base/words.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "compare/compare.h"
#include "compare/table.h"
#include "job/run_folder.h"
#include "starling/error.h"

namespace starling {
namespace {

// How to call it again.
std::string command_text(const Arguments& arguments) {
  std::string text = "starling";
  for (size_t i = 1; i < arguments.command_line.size(); ++i) {
    const std::string& word = arguments.command_line[i];
    if (word == "--overwrite") continue;
    text += " " + shell_word(word);
  }
  return text;
}

}  // namespace

int compare_command(const Arguments& arguments) {
  const StopSignalsWait until_handled;
  outlive_listeners();
  CompareOptions options = arguments.compare;
  options.job_file = arguments.target;
  options.settings = arguments.settings;
  const ComparePlan plan = make_compare_plan(options);
  std::filesystem::path folder = arguments.out;
  if (folder.empty()) {
    folder = RunFolder::default_of(plan.job).path();
    folder += "-compare";
  }
  handle_stop_signals(false);
  const ComparisonResult result =
      run_comparison(plan, {.folder = folder,
                            .overwrite = arguments.overwrite,
                            .program = arguments.command_line.front(),
                            .out = arguments.no_progress ? nullptr : stderr,
                            .terminal = isatty(STDERR_FILENO) == 1,
                            .should_stop = stop_requested});
  if (result.stopped) {
    say(stderr, "stopped: {} of {} trials are done. Go on with:\n  {}\n", result.summary.done,
        result.summary.trials, command_text(arguments));
    return kExitResumeMe;
  }
  say(stdout, "{}\nresults        {}/compare.html, {}/compare.json\n",
      summary_to_text(result.summary), folder.string(), folder.string());
  std::fflush(stdout);
  if (result.summary.failed == 0) return kExitDone;
  throw run_error(
      fmt::format("{} of {} trials failed", result.summary.failed, result.summary.trials),
      fmt::format("see the .log files in {}/runs; the same command runs these again",
                  folder.string()));
}

}  // namespace starling
