#include "compare/compare.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "base/atomic_file.h"
#include "base/json.h"
#include "base/read_file.h"
#include "compare/compare_folder.h"
#include "compare/compare_json.h"
#include "compare/page.h"
#include "compare/texts.h"
#include "compare/time_left.h"
#include "compare/trial_line.h"
#include "compare/trial_process.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kExitBadInput = 2;  // of `starling train`

class Comparison {
 public:
  Comparison(const ComparePlan& plan, const ComparisonOptions& options)
      : plan_(plan),
        options_(options),
        folder_(options.folder),
        line_({.out = options.out, .terminal = options.terminal}),
        time_left_(plan.job.training.time_limit) {}

  ComparisonResult run() {
    folder_.take(plan_, options_.overwrite);
    for (const std::string& note : plan_.notes) tell("note: " + note + "\n");
    for (const Trial& trial : plan_.trials) {
      if (auto outcome = folder_.outcome_of(plan_, trial); outcome.result)
        keep(trial, std::move(*outcome.result));
    }
    if (!outcomes_.empty())
      tell(fmt::format("going on in {}: {} of {} trials are done{}\n", folder_.path().string(),
                       outcomes_.size(), plan_.trials.size(), left_text()));
    bool stopped = false;
    for (size_t i = 0; i < plan_.trials.size() && !stopped; ++i) {
      const Trial& trial = plan_.trials[i];
      if (outcomes_.contains({trial.entry, trial.seed})) continue;
      stopped = !run_trial(trial, i + 1);
      if (!stopped) write_results();
    }
    write_results();
    return {summarize(plan_, outcomes_), stopped};
  }

 private:
  bool should_stop() const { return options_.should_stop && options_.should_stop(); }

  void tell(const std::string& text) const {
    if (options_.out == nullptr) return;
    std::fputs(text.c_str(), options_.out);
    std::fflush(options_.out);
  }

  void keep(const Trial& trial, TrialResult result) {
    time_left_.add(trial.entry, result.wall_s);
    outcomes_[{trial.entry, trial.seed}] = {std::move(result), ""};
  }

  // "   about 6 min left" behind something else; empty at the end.
  std::string left_text() const {
    double left = 0;
    for (const Trial& trial : plan_.trials) {
      if (!outcomes_.contains({trial.entry, trial.seed})) left += time_left_.expected(trial.entry);
    }
    return left > 0 ? fmt::format("   {} left", about_time_text(left)) : "";
  }

  // While a trial runs.
  void look(const Trial& trial, double seconds) {
    if (should_stop()) return line_.say_once("stopping … ");
    if (!line_.is_due()) return;
    const std::vector<TrialPoint> points = folder_.points_of(plan_, trial);
    const TrainingJob& training = plan_.job.training;
    line_.show(progress_text({.done = points.size(),
                              .epochs = training.time_limit > 0 ? 0 : training.epochs,
                              .accuracy = points.empty() ? 0 : points.back().accuracy,
                              .seconds = seconds,
                              .expected = time_left_.expected(trial.entry)}));
  }

  // False when it was stopped.
  bool run_trial(const Trial& trial, size_t number) {
    if (should_stop()) return false;
    const CompareEntry& entry = plan_.entries[trial.entry];
    line_.begin(fmt::format("[{}/{}] {} · {} · seed {}", number, plan_.trials.size(),
                            plan_.condition_label(entry), entry.strategy.label(), trial.seed));
    const auto began = Clock::now();
    const auto took = [&] { return std::chrono::duration<double>(Clock::now() - began).count(); };
    const int code = TrialProcess(folder_.command_of(plan_, trial, options_.program),
                                  folder_.log_of(plan_, trial))
                         .wait([this] { return should_stop(); }, [&] { look(trial, took()); });
    if (should_stop()) {
      line_.end("stopped");
      return false;
    }
    TrialOutcome outcome = code == 0 ? folder_.outcome_of(plan_, trial) : TrialOutcome();
    if (!outcome.result) {
      failed(trial, code, outcome.failure, took());
      return true;
    }
    const std::string figures = figures_text(*outcome.result);
    keep(trial, std::move(*outcome.result));
    line_.end(figures + left_text());
    return true;
  }

  static std::string figures_text(const TrialResult& result) {
    if (result.over_budget)
      return fmt::format("its first epoch took longer than the budget, {}",
                         seconds_text(result.last().seconds));
    return fmt::format("{}, {}", percent_text(result.last().accuracy),
                       seconds_text(result.last().seconds));
  }

  // `why` may be empty: then it is looked for.
  void failed(const Trial& trial, int code, std::string why, double seconds) {
    const fs::path log = folder_.log_of(plan_, trial);
    if (why.empty()) why = last_error(log);
    if (why.empty())
      why = code == 0 ? "it left no report that could be read" : fmt::format("exit code {}", code);
    time_left_.add(trial.entry, seconds);
    outcomes_[{trial.entry, trial.seed}] = {std::nullopt, why};
    line_.end("failed: " + why + left_text());
    if (code == kExitBadInput)
      throw input_error(fmt::format("a trial was refused: {}", why),
                        fmt::format("see {}; what is right so far is kept", log.string()));
  }

  // What the trial said went wrong.
  static std::string last_error(const fs::path& log) {
    constexpr size_t kMaxLogBytes = size_t{16} << 20;
    constexpr std::string_view kError = "error: ";
    std::string text;
    try {
      text = read_text(log, kMaxLogBytes);
    } catch (const Error&) {
      return "";
    }
    const size_t at = text.rfind(kError);
    if (at == std::string::npos) return "";
    const size_t begin = at + kError.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }

  void write_results() const {
    const Summary summary = summarize(plan_, outcomes_);
    write_file_atomically(folder_.json(), summary_to_json(summary));
    write_file_atomically(folder_.page(), draw_page(summary));
  }

  const ComparePlan& plan_;
  const ComparisonOptions& options_;
  CompareFolder folder_;
  TrialLine line_;
  Outcomes outcomes_;
  TimeLeft time_left_;
};

}  // namespace

ComparisonResult run_comparison(const ComparePlan& plan, const ComparisonOptions& options) {
  return Comparison(plan, options).run();
}

}  // namespace starling
