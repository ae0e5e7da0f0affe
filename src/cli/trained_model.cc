#include "cli/trained_model.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/isa.h"
#include "base/say.h"
#include "job/job_build.h"
#include "job/run_folder.h"
#include "starling/error.h"
#include "train/checkpoint.h"
#include "train/safetensors_file.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

// Whether the model was saved before the newest checkpoint, by a run that was resumed since then.
bool is_outdated(const fs::path& model, const std::optional<uint64_t>& checkpoint) {
  const Metadata metadata = load_metadata(model);
  const auto text = metadata.find("step");
  if (!checkpoint || text == metadata.end()) return false;
  uint64_t step = UINT64_MAX;
  std::from_chars(text->second.data(), text->second.data() + text->second.size(), step);
  return step < *checkpoint;
}

fs::path find_weights(const RunFolder& folder) {
  const std::optional<uint64_t> checkpoint = folder.newest_checkpoint();
  std::error_code ignored;
  if (fs::exists(folder.model(), ignored) && !is_outdated(folder.model(), checkpoint))
    return folder.model();
  if (checkpoint) {
    const auto loaded = CheckpointStore(folder.checkpoints()).load_latest();
    if (loaded) {
      for (const std::string& skipped : loaded->skipped) {
        say(stderr, "note: a damaged checkpoint was passed over: {}\n", skipped);
      }
      return loaded->path;
    }
  }
  throw input_error(fmt::format("there are no weights in {}", folder.path().string()),
                    "train first (starling train), or name a file with --weights");
}

}  // namespace

TrainedModel load_trained(const Arguments& arguments) {
  const fs::path target = arguments.target;
  std::error_code ignored;
  const bool is_run = fs::is_directory(target, ignored);
  if (is_run && !fs::exists(target / "job.toml", ignored)) {
    throw input_error(
        fmt::format("{} is not the folder of a run: it has no job.toml", target.string()),
        "give the folder that `starling train` wrote, or a job file");
  }
  Job job = load_job(is_run ? RunFolder(target).job() : target, arguments.settings);
  cap_isa(job.isa);
  fs::path weights = arguments.weights;
  if (weights.empty())
    weights = find_weights(is_run ? RunFolder(target) : RunFolder::default_of(job));
  Trainer trainer(build_model(job, input_shape(job)), trainer_options(job));
  trainer.load(weights);
  return {std::move(job), std::move(trainer), std::move(weights)};
}

}  // namespace starling
