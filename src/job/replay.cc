#include "job/replay.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <set>

#include "base/isa.h"
#include "base/json.h"
#include "base/read_file.h"
#include "cluster/request_socket.h"
#include "job/job_build.h"
#include "job/run_folder.h"
#include "param/record_file.h"
#include "starling/error.h"
#include "train/numbers.h"

namespace starling {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReportBytesMost = size_t{64} << 20;

void check_folder(const RunFolder& folder) {
  std::error_code ignored;
  const std::string name = folder.path().string();
  if (!fs::exists(folder.job(), ignored))
    throw input_error(fmt::format("{} is not the folder of a run: it has no job.toml", name),
                      "give the folder that `starling train --record` wrote");
  if (!fs::exists(folder.record(), ignored))
    throw input_error(fmt::format("the run in {} was not recorded", name),
                      "train with --record; strategies other than an asynchronous "
                      "parameter_server give the same bits whenever they are run");
  if (ask_run(folder.path(), "status"))
    throw input_error(fmt::format("a run is under way in {}", name),
                      fmt::format("wait for its end, or stop it with `starling stop {}`", name));
  if (!fs::exists(folder.report(), ignored))
    throw input_error(fmt::format("the run in {} has not come to an end: there is no report.json "
                                  "to compare with",
                                  name),
                      "go on with it: starling train … --resume --record");
}

struct Reported {
  std::string weights_sha256;
  uint64_t steps = 0;
  bool stopped = false;
};

Reported read_report(const fs::path& path) {
  const Json report = parse_json(read_text(path, kReportBytesMost));
  const auto has = [&](const char* key) { return report.is_object() && report.contains(key); };
  if (!has("weights_sha256") || !report["weights_sha256"].is_string() || !has("steps") ||
      !report["steps"].is_number_unsigned()) {
    throw input_error(fmt::format("{} has no weights_sha256 or no steps", path.string()),
                      "give the folder as `starling train --record` has left it");
  }
  return {.weights_sha256 = report["weights_sha256"].get<std::string>(),
          .steps = report["steps"].get<uint64_t>(),
          .stopped = has("stopped_by") && report["stopped_by"] == "signal"};
}

// The run's job, for one process that writes nothing.
Job job_of(const RunFolder& folder, const std::vector<Setting>& settings) {
  Job job = load_job(folder.job(), settings);
  job.workers = 1;
  job.strategy = {};
  job.checkpoint.enabled = false;
  job.training.save_best.reset();
  return job;
}

class Replay {
 public:
  Replay(const RunFolder& folder, const ReplayRunOptions& options)
      : folder_(folder),
        options_(options),
        job_(job_of(folder, options.settings)),
        bar_(options.out, options.progress) {}

  ReplayResult run() {
    const auto begin = std::chrono::steady_clock::now();
    const Reported reported = read_report(folder_.report());
    const std::vector<RecordedStretch> record = RecordFile::read(folder_.record());
    check(record, reported);
    cap_isa(job_.isa);
    note_numbers(record);
    const JobData data = open_data(job_);
    Trainer trainer(build_model(job_, job_.model.input.rank() > 0 ? job_.model.input
                                                                  : data.train.feature_shape()),
                    trainer_options(job_));
    FitOptions fit = fit_options(job_, folder_.path());
    fit.validation = data.validation;
    fit.replay = ReplayOptions{.record = folder_.record(),
                               .stopped = reported.stopped,
                               .timing_seed = options_.timing_seed};
    fit.on_step = [this](const Progress& progress) { step(progress); };
    fit.on_epoch = [this](const EpochRecord& epoch) { bar_.end_epoch(epoch); };
    fit.on_note = [this](const std::string& text) { note(text); };
    trainer.fit(data.train, fit);
    ReplayResult result = count(record);
    result.recorded_sha256 = reported.weights_sha256;
    result.weights_sha256 = trainer.weights_sha256();
    result.same_saved = compare_saved(
        trainer, reported.stopped ? folder_.checkpoint(reported.steps) : folder_.model());
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  void check(const std::vector<RecordedStretch>& record, const Reported& reported) const {
    const uint64_t end = record.empty() ? 0 : record.back().end_version();
    if (end == reported.steps) return;
    throw input_error(fmt::format("{} goes to update {}, but the run has made {}",
                                  folder_.record().string(), end, reported.steps),
                      end < reported.steps
                          ? "the run went on without --record, or the end of the file is lost"
                          : "the run has not come to an end since: go on with --resume --record");
  }

  void note_numbers(const std::vector<RecordedStretch>& record) {
    for (const RecordedStretch& stretch : record) {
      if (stretch.numbers == numbers_text()) continue;
      note(fmt::format("the run was computed by {}, and this is {}: bits may differ",
                       stretch.numbers, numbers_text()));
      return;
    }
  }

  static std::optional<bool> compare_saved(Trainer& trainer, const fs::path& saved) {
    std::error_code ignored;
    if (!fs::exists(saved, ignored)) return std::nullopt;
    const std::vector<float> own = trainer.snapshot();
    trainer.load(saved);
    const std::vector<float> other = trainer.snapshot();
    return std::memcmp(own.data(), other.data(), own.size() * sizeof(float)) == 0;
  }

  static ReplayResult count(const std::vector<RecordedStretch>& record) {
    ReplayResult result{.stretches = record.size()};
    std::set<int> workers;
    for (const RecordedStretch& stretch : record) {
      workers.insert(stretch.workers.begin(), stretch.workers.end());
      for (const Order& order : stretch.log) {
        if (order.kind == Order::Kind::kApply) ++result.updates;
        if (order.kind == Order::Kind::kDrop) ++result.dropped;
        result.gradients += order.pushes.size();
      }
    }
    result.workers = workers.size();
    return result;
  }

  void step(const Progress& progress) {
    if (progress.epoch != shown_epoch_) {
      shown_epoch_ = progress.epoch;
      samples_before_ = progress.samples;
      bar_.begin_epoch(
          {.epoch = progress.epoch, .epochs = progress.epochs, .steps = progress.steps_per_epoch});
      return;
    }
    bar_.update({.done = progress.step_in_epoch,
                 .samples = progress.samples - samples_before_,
                 .loss = progress.loss});
  }

  void note(const std::string& text) { bar_.print_line("note: " + text); }

  const RunFolder& folder_;
  const ReplayRunOptions& options_;
  const Job job_;
  ProgressBar bar_;
  uint32_t shown_epoch_ = 0;
  uint64_t samples_before_ = 0;  // at the beginning of the epoch that is shown
};

}  // namespace

ReplayResult replay_run(const fs::path& path, const ReplayRunOptions& options) {
  const RunFolder folder(path);
  check_folder(folder);
  return Replay(folder, options).run();
}

}  // namespace starling
