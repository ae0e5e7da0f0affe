#include "job/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/atomic_file.h"
#include "base/isa.h"
#include "base/json.h"
#include "base/read_file.h"
#include "cluster/world.h"
#include "job/fault_table.h"
#include "job/job_build.h"
#include "job/run_folder.h"
#include "job/solo_requests.h"
#include "observe/curves.h"
#include "observe/run_log.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMaxTextBytes = size_t{64} << 20;
// In report.json: what ended a run before its last epoch, for good.
constexpr const char* kEarlyStopping = "early_stopping";
constexpr const char* kTimeLimit = "time_limit";

// The job as it is run: what was left to defaults is written down, so that the run can be
// repeated by a version with other defaults, and paths hold from every folder.
Job resolved(const Job& given, const Model& model) {
  Job job = given;
  if (job.model.input.rank() == 0) job.model.input = model.input_shape();
  job.shards = static_cast<uint64_t>(shard_count(job, model));
  if (job.micro_batch == 0) job.micro_batch = static_cast<uint64_t>(default_micro_batch(model));
  for (fs::path* path : {&job.data.folder, &job.data.train_features, &job.data.train_labels,
                         &job.data.test_features, &job.data.test_labels}) {
    if (!path->empty()) *path = fs::absolute(*path).lexically_normal();
  }
  return job;
}

// A value that a callback watches is looked for now, not after the first epoch.
void check_watched(const std::string& field, const std::string& value,
                   const TrainerOptions& options, const Model& model, bool has_validation) {
  std::vector<std::string> known;
  std::vector<std::string> names = {"loss"};
  for (const MetricPtr& metric : options.metrics.empty()
                                     ? options.loss->default_metrics(model.output_shape())
                                     : options.metrics) {
    names.push_back(metric->kind());
  }
  for (const char* prefix : {"train_", "val_"}) {
    if (prefix == std::string("val_") && !has_validation) continue;
    for (const std::string& name : names) known.push_back(prefix + name);
  }
  if (std::find(known.begin(), known.end(), value) != known.end()) return;
  throw input_error(fmt::format("{} = \"{}\" is not a value of this run", field, value),
                    fmt::format("use one of: {}{}", fmt::join(known, ", "),
                                has_validation ? ""
                                               : "; values that begin with val_ need test data "
                                                 "or data.validation_split"));
}

// What can't be looked at counts as absent: its use says why.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// How often history.csv and the curves are written, whole, while epochs end: some last a
// millisecond.
constexpr std::chrono::seconds kResultsEvery{1};

class Run {
 public:
  Run(const Job& job, const RunOptions& options)
      : options_(options),
        folder_(options.folder.empty() ? RunFolder::default_of(job) : RunFolder(options.folder)),
        data_(open_data(job)),
        model_(build_model(
            job, job.model.input.rank() > 0 ? job.model.input : data_.train.feature_shape())),
        job_(resolved(job, model_)),
        bar_(options.out, shown_by_who_waits(options.progress)) {}

  RunResult run() {
    world().plan_faults(options_.faults);
    // The data are read, for which nobody can say how long it takes: from here on it must get on.
    if (world().survives()) world().note_progress();
    world().pass(FaultPoint::kStart);
    TrainerOptions trainer_settings = trainer_options(job_);
    check();
    trainer_settings.cluster = options_.cluster;
    const bool joins = world().is_newcomer();
    Trainer trainer(model_, trainer_settings);
    check_watched_values(trainer_settings);  // of metrics that fit the model
    trainer.check(data_.train, "training");
    if (data_.validation) trainer.check(data_.validation, "validation");
    if (data_.test) trainer.check(data_.test, "test");
    // Only now, when nothing that was given can be wrong any more, is the folder touched.
    if (!joins) take_folder();
    try {
      return train(trainer);
    } catch (const std::exception& error) {
      if (is_chief()) failed(error.what());
      throw;
    }
  }

 private:
  void check() const {
    if (shares_batches()) world().require_shards(static_cast<int>(job_.shards));
    if (options_.resume && !job_.checkpoint.enabled) {
      throw input_error("there is nothing to resume: checkpoint.enabled is false",
                        "set checkpoint.enabled = true, or start anew with --overwrite");
    }
    if (options_.resume) check_not_finished();
  }

  void check_watched_values(const TrainerOptions& settings) const {
    if (const auto& stopping = job_.training.early_stopping) {
      check_watched("training.early_stopping.value", stopping->value, settings, model_,
                    static_cast<bool>(data_.validation));
    }
    if (const auto& best = job_.training.save_best) {
      check_watched("training.save_best.value", best->value, settings, model_,
                    static_cast<bool>(data_.validation));
    }
  }

  // Early stopping or the time limit ends a run before its last epoch; going on would undo that.
  void check_not_finished() const {
    if (!is_there(folder_.report())) return;
    const Json report = parse_json(read_text(folder_.report(), kMaxTextBytes));
    if (!report.is_object() || !report.contains("stopped_by")) return;
    for (const auto& [name, what] :
         {std::pair{kEarlyStopping, "early stopping"}, {kTimeLimit, "the time limit"}}) {
      if (report["stopped_by"] != name) continue;
      throw input_error(
          fmt::format("the run in {} is finished: {} ended it", folder_.path().string(), what),
          "start anew with --overwrite, or in another folder with --run-dir");
    }
  }

  World& world() const { return options_.cluster.world(); }
  // While the terminal is paused this worker gets on as little as one that waits for others does,
  // and is to be killed as little.
  ProgressOptions shown_by_who_waits(ProgressOptions progress) const {
    progress.write_by = [this](FunctionRef<void()> write) {
      const World::Waiting waiting(world());
      write();
    };
    return progress;
  }
  // Whether each worker has shards of every batch. Who trains apart is lent samples of its own,
  // which are not cut into these.
  bool shares_batches() const { return !trains_apart(strategy_options(job_.strategy)); }
  // All workers make the same calls; the chief writes and tells. Another may become the chief.
  bool is_chief() const { return options_.cluster.is_chief(); }

  RunLog& log() {
    if (!log_)
      log_.emplace(folder_.log(), [this](std::string_view line) { bar_.print_line(line); });
    return *log_;
  }

  void take_folder() {
    const FolderUse use = options_.resume      ? FolderUse::kResume
                          : options_.overwrite ? FolderUse::kOverwrite
                                               : FolderUse::kNew;
    // Checked by all who may become the chief, before it is changed.
    world().agree("the run's folder", [&] {
      if (is_chief() || world().survives()) folder_.check(use);
    });
    world().agree("the run's folder", [&] {
      if (!is_chief()) return;
      folder_.take(use);
      if (!options_.record && folder_.set_record_aside())
        note("the run goes on without --record, so it can't be replayed any more");
      if (!is_there(folder_.job())) folder_.write_job(job_);
      const uint64_t room = static_cast<uint64_t>(world().capacity()) - job_.strategy.servers;
      const uint64_t most = shares_batches() ? std::min<uint64_t>(job_.shards, room) : room;
      world().open_to_requests(fs::absolute(folder_.path()).string(), most);
    });
    // With several workers the launcher is asked; one alone answers itself.
    if (world().survives() || world().workers() > 1) return;
    try {
      requests_.emplace(folder_.path());
    } catch (const Error& error) {
      note(fmt::format("nobody can ask for this run: {}", error.what()));
    }
  }

  RunResult train(Trainer& trainer) {
    world().tell_recoveries([this](const Recovery& recovery) { recovered(recovery); });
    if (is_chief()) {
      log().info(fmt::format("starling {}: {} on {}, {} parameters, {} workers, {} lanes, {}",
                             version(), job_.name, data_.train.describe(), model_.parameter_count(),
                             world().computing(), trainer.lanes(), isa_name()));
    }
    FitOptions fit = fit_options(job_, folder_.path());
    fit.validation = data_.validation;
    fit.checkpoints.resume = options_.resume;
    fit.ledger = folder_.ledger();
    if (options_.record) fit.record = folder_.record();
    fit.should_stop = [this] {
      return (options_.should_stop && options_.should_stop()) ||
             (requests_ && requests_->stop_requested());
    };
    fit.on_step = [this](const Progress& progress) { step(progress); };
    fit.on_epoch = [this](const EpochRecord& record) { epoch(record); };
    fit.on_resume = [this](const History& history) { resumed(history); };
    fit.on_note = [this](const std::string& text) { note(text); };
    history_ = trainer.fit(data_.train, fit);

    RunResult result{.folder = folder_.path(), .history = history_};
    result.stopped = trainer.summary().stopped;
    if (result.stopped && is_chief()) check_saved(trainer.summary().steps);
    std::optional<Evaluation> evaluation;
    if (!result.stopped && data_.test) evaluation = trainer.evaluate(data_.test);
    // The others wait: one of them takes over if the chief is lost before all is written.
    world().agree("results", [&] {
      world().pass(FaultPoint::kResults);
      if (!is_chief()) return;
      remove_dead_temporaries(folder_.path());  // of chiefs before this one
      if (!result.stopped) trainer.save(folder_.model());
      write_results();
      result.report = report(trainer, evaluation);
      write_report(result.report, folder_.report());
      log().info(result.stopped ? "stopped: resume with --resume" : "finished");
    });
    world().tell_recoveries(nullptr);
    return result;
  }

  // A stopped run says "resume me", so what it is to be resumed from must be there.
  void check_saved(uint64_t steps) const {
    if (!job_.checkpoint.enabled) {
      throw run_error("the run was stopped, and nothing was saved: checkpoint.enabled is false",
                      "set checkpoint.enabled = true to be able to resume");
    }
    if (!is_there(folder_.checkpoint(steps))) {
      throw run_error(
          fmt::format("the run was stopped, but its last checkpoint could not be saved in {}",
                      folder_.checkpoints().string()),
          "see the note above; --resume goes on from the checkpoint before it, if there is one");
    }
  }

  static Report::Recovery in_report(const Recovery& recovery) {
    Report::Recovery entry{.joined = recovery.joined,
                           .retired = recovery.retired,
                           .how = recovery.news,
                           .operation = recovery.operation,
                           .redone = recovery.redone,
                           .resumption = recovery.lost.empty() ? recovery.seconds : 0,
                           .work_lost = recovery.work_lost};
    for (const auto& [worker, detection, resumption] : recovery.lost) {
      entry.lost.push_back(worker);
      if (detection) entry.detection = std::max(entry.detection.value_or(0), *detection);
      entry.resumption = std::max(entry.resumption, resumption);
    }
    return entry;
  }

  // On every worker: the log has them all.
  void recovered(const Recovery& recovery) {
    std::string what = recovery.news;
    for (const auto& [workers, verb] :
         {std::pair{&recovery.joined, "joined"}, {&recovery.retired, "left"}}) {
      if (workers->empty()) continue;
      what += fmt::format("{}worker{} {} {}", what.empty() ? "" : "; ",
                          workers->size() == 1 ? "" : "s", fmt::join(*workers, ", "), verb);
    }
    if (what.empty()) what = "nobody joined";
    std::string text =
        fmt::format("{}; worker{} {} {} on", what, recovery.left.size() == 1 ? "" : "s",
                    fmt::join(recovery.left, ", "), recovery.left.size() == 1 ? "goes" : "go");
    const bool was_loss = !recovery.news.empty();
    if (was_loss) {
      text += fmt::format(" (what was under way is {}, {:.0f} ms)",
                          recovery.redone ? "redone" : "completed", recovery.seconds * 1e3);
    }
    if (is_chief()) {
      folder_.take_over();
      bar_.print_line("note: " + text);
    }
    if (was_loss) text += "; noticed in: " + recovery.operation;
    log().info(fmt::format("worker {}: {}", world().name(), text));
  }

  void step(const Progress& progress) {
    if (requests_) {
      requests_->set_step((progress.epoch - 1) * progress.steps_per_epoch + progress.step_in_epoch,
                          progress.epochs * progress.steps_per_epoch);
    }
    if (!is_chief()) return;
    if (progress.epoch != shown_epoch_) {
      shown_epoch_ = progress.epoch;
      samples_before_ = progress.samples;
      bar_.begin_epoch({.epoch = progress.epoch,
                        .epochs = progress.epochs,
                        .steps = progress.steps_per_epoch,
                        .done = progress.step_in_epoch});
      return;
    }
    if (!options_.progress.enabled || !options_.progress.terminal) return;
    ProgressBar::Update update{.done = progress.step_in_epoch,
                               .samples = progress.samples - samples_before_,
                               .loss = progress.loss};
    for (const auto& [name, value] : progress.metrics) {
      if (name == "accuracy") update.accuracy = value;
    }
    bar_.update(update);
  }

  void epoch(const EpochRecord& record) {
    history_.append(record);
    if (!is_chief()) return;
    if (shown_epoch_ != record.epoch) {  // all of its steps were done before a resume
      bar_.begin_epoch(
          {.epoch = record.epoch, .epochs = static_cast<uint32_t>(job_.training.epochs)});
    }
    bar_.end_epoch(record);
    std::string line = fmt::format("epoch {}", record.epoch);
    for (const auto& [name, value] : record.values) line += fmt::format("  {} {:.6g}", name, value);
    log().info(line);
    const auto now = std::chrono::steady_clock::now();
    if (now < results_due_) return;
    results_due_ = now + kResultsEvery;
    try {
      write_results();
    } catch (const Error& error) {  // they are written again, with a later epoch or at the end
      note(fmt::format("training goes on, but {}", error.what()));
    }
  }

  // The last epochs may not have been written yet. What ended the run matters more than an error
  // of writing them.
  void failed(const char* why) {
    log().error(why);
    if (history_.empty()) return;
    try {
      write_results();
    } catch (const Error& error) {
      log().error(error.what());
    }
  }

  void resumed(const History& history) {
    history_ = history;
    if (is_chief()) folder_.write_job(job_);
  }

  void note(const std::string& text) {
    if (!is_chief()) return;
    log().info(text);
    bar_.print_line("note: " + text);
  }

  void write_results() const {
    history_.write_csv(folder_.history());
    write_curves(history_, folder_.curves(),
                 {.title = job_.name,
                  .subtitle = fmt::format("{} parameters, batch {}, {} {}",
                                          model_.parameter_count(), job_.training.batch,
                                          job_.optimizer.name, job_.optimizer.learning_rate)});
  }

  Report report(const Trainer& trainer, const std::optional<Evaluation>& evaluation) const {
    const FitSummary& summary = trainer.summary();
    Report report;
    report.strategy = summary.strategy;
    report.workers = world().computing();
    report.servers = world().workers() - report.workers;
    if (report.strategy != "single") {
      report.link_rate = job_.strategy.link_rate;
      report.link_delay = job_.strategy.link_delay;
    }
    if (const auto& costs = world().measured_link())
      report.link = {costs->latency_s * 1e6, costs->gbit_per_s()};
    report.consistency = job_.strategy.consistency;
    report.partition = job_.strategy.partition;
    report.staleness = summary.staleness;
    report.dropped_gradients = summary.dropped_gradients;
    report.apart = trains_apart(strategy_options(job_.strategy));
    if (makes_local_steps(strategy_options(job_.strategy))) report.period = job_.strategy.period;
    report.outer = job_.strategy.outer;
    report.local_state = job_.strategy.local_state;
    report.post_local_after = job_.strategy.post_local_after;
    report.tasks = job_.strategy.tasks;
    report.match = job_.strategy.match;
    report.meetings = summary.meetings;
    report.beta = job_.strategy.beta;
    report.disagreement = summary.disagreement;
    report.lanes = trainer.lanes();
    report.exact = job_.strategy.exact && !report.apart;
    report.bytes_sent = summary.bytes_moved;
    report.optimizer_bytes = summary.optimizer_bytes;
    for (const WorkerTimes& t : summary.times)
      report.times.push_back({t.worker, t.input, t.compute, t.communication, t.hidden, t.waiting,
                              t.shards, t.shard, t.bytes_sent});
    report.balance = job_.strategy.balance;
    report.rebalances = summary.rebalances;
    report.shards = static_cast<int>(job_.shards);
    report.micro_batch = static_cast<int>(job_.micro_batch);
    report.precision = job_.precision;
    report.isa = isa_name();
    report.epochs = history_.size();
    report.batch = job_.training.batch;
    report.accumulate = job_.training.accumulate;
    report.seed = job_.seed;
    report.steps = summary.steps;
    report.samples = summary.samples;
    if (summary.trained_samples > 0) {
      report.samples_per_s =
          static_cast<double>(summary.trained_samples) / std::max(summary.training_seconds, 1e-9);
    } else if (!history_.empty()) {  // resumed at its end
      report.samples_per_s = history_.epochs().back().value("samples_per_s");
    }
    if (!history_.empty()) report.train_loss = history_.epochs().back().value("train_loss");
    report.weights_sha256 = trainer.weights_sha256();
    report.samples_unique = summary.samples_unique;
    report.samples_duplicated = summary.samples_duplicated;
    report.samples_missing = summary.samples_missing;
    report.skipped_steps = summary.skipped_steps;
    report.roll_backs = summary.roll_backs;
    if (!summary.resumed_from.empty()) report.resumed_from = summary.resumed_from;
    if (summary.stopped) {
      report.stopped_by = "signal";
    } else if (history_.size() < job_.training.epochs) {
      const std::vector<double> seconds = history_.column("train_seconds");
      const double trained = std::accumulate(seconds.begin(), seconds.end(), 0.0);
      const double limit = job_.training.time_limit;
      report.stopped_by = limit > 0 && trained >= limit ? kTimeLimit : kEarlyStopping;
    }
    for (const Recovery& recovery : world().recoveries())
      report.recoveries.push_back(in_report(recovery));
    report.faults = fault_table(options_.faults, world().recoveries());
    if (evaluation) {
      report.test_loss = (*evaluation)["loss"];
      for (const auto& [name, value] : evaluation->values) {
        if (name == "accuracy") report.test_accuracy = value;
      }
    }
    report.wall_s = seconds();
    return report;
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const RunOptions& options_;
  RunFolder folder_;
  const JobData data_;
  const Model model_;
  const Job job_;
  ProgressBar bar_;
  std::optional<RunLog> log_;
  std::optional<SoloRequests> requests_;
  History history_;
  std::chrono::steady_clock::time_point results_due_;
  uint32_t shown_epoch_ = 0;
  uint64_t samples_before_ = 0;  // at the first step of the epoch that is shown
};

}  // namespace

RunResult run_job(const Job& job, const RunOptions& options) {
  cap_isa(job.isa);
  return Run(job, options).run();
}

}  // namespace starling
