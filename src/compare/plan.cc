#include "compare/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "compare/misfit.h"
#include "job/job_build.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kEpochsMax = 1'000'000;  // of the field training.epochs

class Planner {
 public:
  explicit Planner(const CompareOptions& options) : options_(options) {}

  ComparePlan make() {
    plan_.job = load_job(options_.job_file, options_.settings);
    plan_.target = options_.job_file.string();
    plan_.goal = options_.goal;
    const std::vector<Condition> conditions = take_conditions();
    const std::vector<ComparedStrategy> strategies = parse_strategies(options_.strategies);
    set_common();
    set_data_and_budget();
    for (uint64_t i = 0; i < options_.seeds; ++i) plan_.seeds.push_back(plan_.job.seed + i);
    for (const ComparedStrategy& strategy : strategies) {
      if (strategy.name == "single") add_reference(strategy);
    }
    for (const Condition& condition : conditions) add_all(strategies, condition);
    for (const auto& [what, where] : left_out_) {
      const bool always = where.size() == plan_.conditions.size();
      note(always ? what : fmt::format("{}; {}", fmt::join(where, "; "), what));
    }
    check_fit(strategies);
    for (const uint64_t seed : plan_.seeds) {
      for (size_t entry = 0; entry < plan_.entries.size(); ++entry)
        plan_.trials.push_back({entry, seed});
    }
    return std::move(plan_);
  }

 private:
  void note(std::string text) { plan_.notes.push_back(std::move(text)); }

  // Links of the job's own are conditions too, and have a name as such.
  std::vector<Condition> take_conditions() {
    StrategyJob& strategy = plan_.job.strategy;
    ConditionLists lists = options_.conditions;
    if (lists.workers.empty())
      lists.workers = fmt::format("{}", std::max<uint64_t>(2, plan_.job.workers));
    if (lists.link_rate.empty()) lists.link_rate = strategy.link_rate;
    if (lists.link_delay.empty()) lists.link_delay = strategy.link_delay;
    strategy.link_rate.clear();
    strategy.link_delay.clear();
    return make_conditions(lists);
  }

  // What would give trials other budgets, or take time that is not training.
  void set_common() {
    Job& job = plan_.job;
    if (job.training.early_stopping) note("early stopping is off: every trial has the same budget");
    job.training.early_stopping.reset();
    job.training.save_best.reset();
    job.checkpoint.enabled = false;
    if (job.non_finite == "roll_back") {
      note("non_finite is \"skip\": trials write no checkpoints that they could roll back to");
      job.non_finite = "skip";
    }
    for (fs::path* path : {&job.data.folder, &job.data.train_features, &job.data.train_labels,
                           &job.data.test_features, &job.data.test_labels}) {
      if (!path->empty()) *path = fs::absolute(*path).lexically_normal();
    }
    const std::vector<std::string>& metrics = job.training.metrics;
    const bool has_accuracy =
        metrics.empty() ? job.training.loss != "mean_squared_error"
                        : std::find(metrics.begin(), metrics.end(), "accuracy") != metrics.end();
    if (!has_accuracy)
      throw input_error("strategies are compared by accuracy, and this job does not measure it",
                        "compare is for labels that are classes; see training.metrics");
  }

  void set_data_and_budget() {
    const Job& job = plan_.job;
    const JobData data = open_data(job);
    if (!data.validation)
      throw input_error("there is no data to measure the accuracy on",
                        "give test data, or --set data.validation_split=0.1");
    plan_.data =
        fmt::format("{} samples to train on, {} to validate, {} to test", data.train.size(),
                    data.validation.size(), data.test ? data.test.size() : 0);
    size_ = {.shards = job.shards, .samples = data.train.size()};
    if (size_.shards == 0)
      size_.shards = static_cast<uint64_t>(
          default_shards(job.training.batch, build_model(job, input_shape(job)).parameter_count()));
    set_budget(data.train.size());
  }

  void set_budget(uint64_t samples) {
    TrainingJob& training = plan_.job.training;
    std::optional<double> seconds = options_.seconds;
    if (training.time_limit > 0 && !seconds) {
      if (options_.epochs || options_.samples) {
        note("the job's own limit of time is off: every trial has the same budget");
      } else {
        seconds = training.time_limit;
      }
    }
    training.time_limit = 0;
    if (options_.epochs) training.epochs = *options_.epochs;
    if (options_.samples) {
      training.epochs = (*options_.samples + samples - 1) / samples;
      if (training.epochs * samples != *options_.samples)
        note(
            fmt::format("{} samples are not a whole number of epochs: trials have {} epochs, {} "
                        "samples",
                        *options_.samples, training.epochs, training.epochs * samples));
    }
    if (training.epochs < 1 || training.epochs > kEpochsMax)
      throw input_error(fmt::format("a budget of {} epochs", training.epochs),
                        fmt::format("use 1 to {} epochs", kEpochsMax));
    plan_.budget = fmt::format("{} epoch{} of {} samples", training.epochs,
                               training.epochs == 1 ? "" : "s", samples);
    if (seconds) set_seconds(*seconds, samples);
  }

  void set_seconds(double seconds, uint64_t samples) {
    Job& job = plan_.job;
    job.training.time_limit = seconds;
    plan_.budget = fmt::format("{:g} s of training", seconds);
    const bool is_constant = job.optimizer.schedule.name == "constant";
    // A limit of the job's own goes with its epochs: it may be far away.
    if (is_constant && options_.seconds && !options_.epochs) {
      job.training.epochs = kEpochsMax;
      return;
    }
    plan_.budget += fmt::format(", at most {} epochs of {} samples", job.training.epochs, samples);
    if (!is_constant && !options_.epochs)
      note(
          fmt::format("the schedule of the learning rate ends with the job's {} epochs, and so "
                      "do trials that have time left (--epochs sets them)",
                      job.training.epochs));
  }

  static std::vector<Setting> settings_of(const ComparedStrategy& strategy) {
    std::vector<Setting> settings = {{"strategy.name", strategy.name}};
    // The job's own may be for another strategy.
    if (strategy.name != "parameter_server") settings.push_back({"strategy.consistency", "sync"});
    for (const auto& [key, value] : strategy.settings)
      settings.push_back({"strategy." + key, value});
    return settings;
  }

  void add_reference(const ComparedStrategy& strategy) {
    std::vector<Setting> settings = settings_of(strategy);
    settings.push_back({"strategy.servers", "0"});
    settings.push_back({"strategy.min_workers", "1"});
    settings.push_back({"workers", "1"});
    settings.push_back({"lanes", "0"});  // all cores
    plan_.entries.push_back({.strategy = strategy,
                             .condition = std::nullopt,
                             .settings = std::move(settings),
                             .faults = "",
                             .folder = "runs/" + strategy.slug()});
  }

  // What can be run of it; a condition under which nothing can is none of the plan's.
  void add_all(const std::vector<ComparedStrategy>& strategies, const Condition& condition) {
    std::vector<CompareEntry> fitting;
    std::map<std::string, std::vector<std::string>> others;  // strategies, by what is in the way
    for (const ComparedStrategy& strategy : strategies) {
      if (strategy.name == "single") continue;
      std::vector<Setting> settings = condition.settings();
      for (Setting& setting : settings_of(strategy)) settings.push_back(std::move(setting));
      const Job job = parse_job(job_to_toml(plan_.job), plan_.target, {}, settings);
      if (const std::string why = misfit(job, size_); !why.empty()) {
        others[why].push_back(strategy.label());
        continue;
      }
      if (!has_servers(job.strategy)) settings.push_back({"strategy.servers", "0"});
      fitting.push_back({.strategy = strategy,
                         .condition = plan_.conditions.size(),
                         .settings = std::move(settings),
                         .faults = condition.faults(),
                         .folder = fmt::format("runs/{}/{}", condition.slug(), strategy.slug())});
    }
    if (fitting.empty()) {
      for (const auto& [why, labels] : others)
        note(fmt::format("nothing is run with {}: {}", condition.label(), why));
      return;
    }
    for (const auto& [why, labels] : others)
      left_out_[fmt::format("{} {} left out: {}", fmt::join(labels, ", "),
                            labels.size() == 1 ? "is" : "are", why)]
          .push_back(condition.label());
    plan_.conditions.push_back(condition);
    std::move(fitting.begin(), fitting.end(), std::back_inserter(plan_.entries));
  }

  void check_fit(const std::vector<ComparedStrategy>& strategies) const {
    if (plan_.entries.size() >= 2) return;
    throw input_error(fmt::format("there is nothing to compare: {} of the {} strategies can be run",
                                  plan_.entries.size(), strategies.size()),
                      plan_.notes.empty() ? "name two or more strategies, or use --strategies all"
                                          : plan_.notes.back());
  }

  const CompareOptions& options_;
  ComparePlan plan_;
  JobSize size_;
  std::map<std::string, std::vector<std::string>> left_out_;  // conditions, by what and why
};

}  // namespace

std::string ComparePlan::trial_folder(const Trial& trial) const {
  return fmt::format("{}/seed-{}", entries[trial.entry].folder, trial.seed);
}

std::vector<Setting> ComparePlan::trial_settings(const Trial& trial) const {
  std::vector<Setting> settings = entries[trial.entry].settings;
  settings.push_back({"seed", fmt::format("{}", trial.seed)});
  return settings;
}

ComparePlan make_compare_plan(const CompareOptions& options) { return Planner(options).make(); }

}  // namespace starling
