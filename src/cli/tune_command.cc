#include <fmt/format.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "base/say.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "job/tune.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxJobBytes = 1 << 20;

}  // namespace

int tune_command(const Arguments& arguments) {
  outlive_listeners();
  const Job job = load_job(arguments.target, arguments.settings);
  say(stdout, "{:>8} {:>12} {:>12}\n", "shards", "micro_batch", "samples/s");
  std::fflush(stdout);
  const std::vector<TuneCandidate> candidates =
      tune_job(job, {.on_measured = [](const TuneCandidate& candidate) {
                 say(stdout, "{:>8} {:>12} {:>12.0f}\n", candidate.shards, candidate.micro_batch,
                     candidate.samples_per_s);
                 std::fflush(stdout);
               }});
  const TuneCandidate& best = candidates.front();
  say(stdout, "best: shards = {}, micro_batch = {}\n", best.shards, best.micro_batch);
  if (arguments.dry_run) return kExitDone;
  // The file itself is replaced, not a link to it; who may read it stays as it is.
  const fs::path path = fs::canonical(arguments.target);
  const std::string text =
      with_tuning(read_text(path, kMaxJobBytes), arguments.target, best.shards, best.micro_batch);
  const fs::perms permissions = fs::status(path).permissions();
  write_file_atomically(path, text);
  fs::permissions(path, permissions);
  say(stdout, "written to {}\n", arguments.target);
  say(stderr,
      "warning: shards and micro_batch are part of a job's numbers: results differ in the "
      "last bits "
      "from those of the job as it was, and its checkpoints can't be resumed\n");
  return kExitDone;
}

}  // namespace starling
