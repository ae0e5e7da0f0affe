#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <unordered_map>

#include "tensor/buffer.h"

namespace bench {
namespace {

using namespace starling;
using Clock = std::chrono::steady_clock;

double ns_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

// What reading the clock adds to a measured interval: a typical one, by the median.
double clock_ns() {
  std::vector<double> intervals(1001);
  for (double& interval : intervals) interval = ns_since(Clock::now());
  std::nth_element(intervals.begin(), intervals.begin() + 500, intervals.end());
  return intervals[500];
}

template <typename Work>
double timed_ns(Work work) {
  const auto begin = Clock::now();
  work();
  return ns_since(begin);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Runs the kernels of a step as Executor::run_stack does, each with a clock around it.
class KernelClock {
 public:
  explicit KernelClock(Job& job)
      : job_(job),
        batch_(static_cast<int64_t>(job.options().batch)),
        stack_(job.executor().prepare(batch_)[0].size()) {
    const TrainState& state = job.state();
    gradients_ = Buffer<float>(state.space.total_floats());
    moments_.resize(state.moments.size());
    losses_ = Buffer<float>(job.options().batch);
    for_micro_batches([&](int64_t, int64_t rows, bool) {
      if (plans_.contains(rows)) return;
      const Plan& plan = job.executor().plan(rows, stack_);
      plans_[rows] = {&plan, std::vector<std::vector<double>>(plan.kernels().size()), 0};
      arena_floats_ = std::max(arena_floats_, plan.arena_floats());
    });
    arena_ = Buffer<float>(arena_floats_);
  }

  void step(bool keep) {
    const auto step_begin = Clock::now();
    for_micro_batches([&](int64_t first, int64_t rows, bool accumulate) {
      Timed& timed = plans_[rows];
      const Frame frame = make_frame(first, rows, accumulate);
      timed.calls += keep ? 1 : 0;
      for (size_t i = 0; i < timed.times.size(); ++i) {
        const double ns = timed_ns([&] { timed.plan->kernels()[i]->run(frame); }) - overhead_;
        if (keep) timed.times[i].push_back(ns);
      }
    });
    if (LateGradients* const late = job_.executor().late(); late != nullptr) {
      for (const LateProduct& product : late->layout().products()) {
        const double ns = timed_ns([&] { compute(*late, product); });
        if (keep) late_times_[product.slice].push_back(ns);
      }
    }
    if (keep) steps_.push_back(ns_since(step_begin));
  }

  struct Line {
    std::string label;
    double calls_per_step, ns_per_step;
  };
  std::vector<Line> lines() const {
    std::vector<Line> lines;
    const double steps = static_cast<double>(steps_.size());
    for (const auto& [rows, timed] : plans_) {
      const double calls = static_cast<double>(timed.calls) / steps;
      for (size_t i = 0; i < timed.times.size(); ++i) {
        const std::string& label = timed.plan->kernels()[i]->label();
        lines.push_back({plans_.size() > 1 ? fmt::format("{} ({} rows)", label, rows) : label,
                         calls, std::max(0.0, median(timed.times[i])) * calls});
      }
    }
    for (const auto& [slice, times] : late_times_)
      lines.push_back(
          {job_.state().space.slices()[slice].name + " late gradient", 1, median(times)});
    return lines;
  }
  // Of them all, in a step.
  double late_ns() const {
    double sum = 0;
    for (const auto& [slice, times] : late_times_) sum += median(times);
    return sum;
  }

 private:
  struct Timed {
    const Plan* plan = nullptr;
    std::vector<std::vector<double>> times;  // by kernel, ns
    size_t calls = 0;
  };

  template <typename Use>
  void for_micro_batches(Use use) const {
    const ExecutorOptions& options = job_.executor().options();
    for (const ShardRange& stack : job_.executor().prepare(batch_)) {
      const int64_t begin = shard_begin(batch_, stack.begin, options.shards),
                    end = shard_begin(batch_, stack.end, options.shards);
      const int64_t micro = job_.executor().micro_batch(end - begin, stack.size());
      for (int64_t first = begin; first < end; first += micro)
        use(first, std::min(micro, end - first), first > begin);
    }
  }

  static void compute(LateGradients& late, const LateProduct& product) {
    const auto floats = static_cast<size_t>(product.in * product.out);
    for (size_t at = 0; at < floats;) at = late.compute(0, product, at, floats).last;
  }

  Frame make_frame(int64_t first, int64_t rows, bool accumulate) {
    const BatchRows batch = job_.rows();
    const int64_t width = static_cast<int64_t>(batch_features());
    Frame frame;
    const auto set = [&](Space space, const float* base) {
      frame.base[static_cast<size_t>(space)] = const_cast<float*>(base);
    };
    set(Space::kArena, arena_.data());
    set(Space::kFeatures, batch.features + first * width);
    set(Space::kLabels, batch.labels + first);
    set(Space::kWeights, job_.state().weights.data());
    set(Space::kGradients, gradients_.data());
    if (const LateGradients* const late = job_.executor().late(); late != nullptr)
      set(Space::kLate, late->area());
    frame.first_sample = first;
    frame.context = {.training = true};
    frame.context.rows = rows;
    frame.context.samples =
        batch.samples.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    frame.loss_scale = 1.0f / static_cast<float>(batch_);
    frame.accumulate = accumulate;
    frame.losses = losses_.data();
    frame.moments = moments_.data();
    return frame;
  }

  size_t batch_features() const {
    Problem problem;
    find_problem(job_.options().model, problem);
    return problem.features;
  }

  Job& job_;
  const int64_t batch_;
  const int stack_;
  const double overhead_ = clock_ns();
  Buffer<float> arena_, gradients_, losses_;
  std::vector<double> moments_;
  size_t arena_floats_ = 0;
  std::map<int64_t, Timed> plans_;                    // by rows
  std::map<size_t, std::vector<double>> late_times_;  // by slice
  std::vector<double> steps_;
};

std::string table(const std::vector<KernelClock::Line>& lines, double step_ns) {
  std::string text = fmt::format("{:<52} {:>6} {:>12} {:>7}\n", "kernel", "calls", "us/step", "%");
  for (const KernelClock::Line& line : lines) {
    text += fmt::format("{:<52} {:>6.0f} {:>12.2f} {:>6.1f}%\n", line.label, line.calls_per_step,
                        line.ns_per_step / 1e3, 100 * line.ns_per_step / step_ns);
  }
  return text;
}

}  // namespace

std::string profile(Job& job, int steps) {
  std::vector<double> whole, gradient, packing;
  KernelClock clock(job);
  Executor& executor = job.executor();
  const int warm_up = std::max(1, steps / 10);
  // In turns, so that what disturbs the machine disturbs all alike.
  for (int i = -warm_up; i < steps; ++i) {
    const double step_ns = timed_ns([&] { job.step(); });
    const double gradient_ns = timed_ns([&] { executor.gradient(job.rows()); });
    executor.run_alone([&] { clock.step(i >= 0); });
    const double packing_ns = timed_ns([&] { executor.refresh_updated(); });
    if (i < 0) continue;
    whole.push_back(step_ns);
    gradient.push_back(gradient_ns);
    packing.push_back(executor.packed_bytes() > 0 ? packing_ns : 0);
  }

  const double step_ns = median(whole), gradient_ns = median(gradient),
               packing_ns = median(packing);
  const std::vector<KernelClock::Line> lines = clock.lines();
  double kernels_ns = 0;
  for (const KernelClock::Line& line : lines) kernels_ns += line.ns_per_step;
  const double lanes = executor.lanes().count(), late_ns = clock.late_ns();
  kernels_ns -= late_ns;
  std::string text = table(lines, step_ns);
  const auto part = [&](const char* name, double ns) {
    text +=
        fmt::format("{:<52} {:>6} {:>12.2f} {:>6.1f}%\n", name, "", ns / 1e3, 100 * ns / step_ns);
  };
  text += "\n";
  part("kernels (one lane's clock, shared by all lanes)", kernels_ns / lanes);
  part("the rest of the gradient: lanes, loading, sums", gradient_ns - kernels_ns / lanes);
  part("late gradients (likewise)", late_ns / lanes);
  part("update of the weights", step_ns - gradient_ns - late_ns / lanes - packing_ns);
  part("packing of the weights", packing_ns);
  part("step", step_ns);
  text += fmt::format("{:<52} {:>6} {:>12.2f}\n", "GFLOP/s of products and convolutions", "",
                      job.flops_per_step() / step_ns);
  return text;
}

}  // namespace bench
