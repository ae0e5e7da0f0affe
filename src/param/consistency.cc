#include "param/consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/random.h"
#include "starling/error.h"

namespace starling {
namespace {

// Each gradient is an update, as it comes.
class Async final : public Consistency {
 public:
  bool may_begin(int) const override { return true; }
  void begin(int) override {}
  Fate arrive(int worker) override { return {.applied = {worker}}; }
  bool waits() const override { return false; }
};

// Nobody applies anything: workers go on with weights of their own, and when one has handed in, it
// meets another.
class Gossip final : public Consistency {
 public:
  Gossip(bool ring, uint64_t seed, std::vector<int> workers)
      : ring_(ring), seed_(seed), workers_(std::move(workers)) {
    std::sort(workers_.begin(), workers_.end());
  }

  bool may_begin(int) const override { return true; }
  void begin(int) override {}
  Fate arrive(int worker) override { return {.applied = {worker}}; }
  bool waits() const override { return false; }
  bool lends_ahead() const override { return false; }
  std::optional<int> partner(int worker, const std::set<int>& free, uint64_t version) override {
    if (ring_) return neighbour(worker, free);
    if (free.empty()) return std::nullopt;
    const uint64_t drawn = mix64(seed_ ^ mix64(version)) % free.size();
    return *std::next(free.begin(), static_cast<std::ptrdiff_t>(drawn));
  }

 private:
  // The next and the one before in turns, if that one is free.
  std::optional<int> neighbour(int worker, const std::set<int>& free) {
    const size_t count = workers_.size();
    const auto at =
        static_cast<size_t>(std::find(workers_.begin(), workers_.end(), worker) - workers_.begin());
    const size_t turn = turns_[worker]++;
    for (const size_t step :
         {turn % 2 == 0 ? size_t{1} : count - 1, turn % 2 == 0 ? count - 1 : size_t{1}}) {
      const int other = workers_[(at + step) % count];
      if (free.contains(other)) return other;
    }
    return std::nullopt;
  }

  const bool ring_;
  const uint64_t seed_;
  std::vector<int> workers_;
  std::map<int, size_t> turns_;
};

// As asynchronous, but no worker is further ahead of the slowest than the bound.
class BoundedStaleness final : public Consistency {
 public:
  BoundedStaleness(int bound, const std::vector<int>& workers) : bound_(bound) {
    for (const int worker : workers) clocks_[worker] = {};
    there_.insert(workers.begin(), workers.end());
  }

  bool may_begin(int worker) const override {
    return std::all_of(there_.begin(), there_.end(), [&](int other) {
      return clocks_.at(worker).begun - clocks_.at(other).come <= bound_;
    });
  }
  void begin(int worker) override { ++clocks_.at(worker).begun; }
  Fate arrive(int worker) override {
    ++clocks_.at(worker).come;
    return {.applied = {worker}};
  }
  void keep_to(const std::set<int>& workers) override { there_ = workers; }

 private:
  struct Clock {
    int64_t begun = 0, come = 0;  // gradients
  };

  const int64_t bound_;
  std::set<int> there_;
  std::map<int, Clock> clocks_;
};

// Rounds: a worker gives one gradient to each, and the first few that come make its update. What
// comes later belongs to a round that is over, and is dropped.
class Backup final : public Consistency {
 public:
  Backup(int spare, const std::vector<int>& workers)
      : spare_(static_cast<size_t>(spare)), there_(workers.size()) {}

  bool may_begin(int worker) const override {
    const auto last = last_round_.find(worker);
    return last == last_round_.end() || last->second < round_;
  }
  void begin(int worker) override {
    last_round_[worker] = round_;
    under_way_.insert(worker);
  }
  Fate arrive(int worker) override {
    under_way_.erase(worker);
    if (last_round_.at(worker) < round_) return {.dropped = {worker}};
    arrived_.push_back(worker);
    return is_full() ? close() : Fate{};
  }
  Fate look() override {
    const bool awaits = std::any_of(under_way_.begin(), under_way_.end(),
                                    [&](int worker) { return last_round_.at(worker) == round_; });
    return arrived_.empty() || (awaits && !is_full()) ? Fate{} : close();
  }
  void keep_to(const std::set<int>& workers) override { there_ = workers.size(); }
  size_t spare() const override { return spare_; }
  // Its gradient would belong to a round that is over.
  bool lends_ahead() const override { return false; }

 private:
  bool is_full() const { return arrived_.size() + spare_ >= there_; }
  Fate close() {
    ++round_;
    // In one order, whoever came first: so a round of the same gradients has the same bits.
    std::sort(arrived_.begin(), arrived_.end());
    return {.applied = std::exchange(arrived_, {})};
  }

  const size_t spare_;
  size_t there_;  // workers that take part
  int64_t round_ = 0;
  std::map<int, int64_t> last_round_;  // for which the worker began a gradient
  std::set<int> under_way_;            // whose gradient has not come
  std::vector<int> arrived_;           // in this round
};

// Rounds that are cut into tasks. Workers take one after another, and what they hand in is added to
// the round. When all are lent, who rests may take one that another has too: the first hand-in
// counts. A round is complete when there is one of every task.
class Tasks final : public Consistency {
 public:
  explicit Tasks(uint64_t tasks) : tasks_(tasks) {}

  bool may_begin(int) const override { return begun_ < tasks_; }
  void begin(int worker) override {
    ++begun_;
    open_.insert(next_);
    doing_[worker] = next_++;
  }
  Fate arrive(int worker) override {
    const uint64_t task = doing_.extract(worker).mapped();
    if (open_.erase(task) == 0) return fate({}, {worker}, false);
    added_ = true;
    return fate({worker}, {}, begun_ == tasks_ && open_.empty());
  }
  // There are no samples for more tasks.
  Fate look() override { return fate({}, {}, added_ && open_.empty()); }
  std::vector<int> to_repeat() const override {
    std::map<uint64_t, std::vector<int>> by_task;
    for (const auto& [worker, task] : doing_) {
      if (open_.contains(task)) by_task[task].push_back(worker);
    }
    std::vector<int> workers;
    for (const auto& [task, those] : by_task) {
      if (those.size() == 1) workers.push_back(those[0]);
    }
    return workers;
  }
  void repeat(int worker, int other) override { doing_[worker] = doing_.at(other); }
  uint64_t tasks() const override { return tasks_; }
  bool waits() const override { return false; }  // a slow one's are repeated
  bool lends_ahead() const override { return false; }

 private:
  Fate fate(std::vector<int> added, std::vector<int> repeated, bool closes) {
    if (closes) {
      begun_ = 0;
      added_ = false;
    }
    return {.applied = {},
            .dropped = {},
            .added = std::move(added),
            .repeated = std::move(repeated),
            .closes = closes};
  }

  const uint64_t tasks_;
  uint64_t begun_ = 0;             // in this round
  bool added_ = false;             // something was, in it
  uint64_t next_ = 0;              // task
  std::set<uint64_t> open_;        // tasks of this round that were begun, and not handed in
  std::map<int, uint64_t> doing_;  // what each worker is at
};

}  // namespace

std::unique_ptr<Consistency> make_consistency(const ConsistencyOptions& options,
                                              const std::vector<int>& workers) {
  if (options.name == "async") return std::make_unique<Async>();
  if (options.name == "ssp") {
    if (options.staleness < 0)
      throw input_error(fmt::format("strategy.staleness = {} is out of range", options.staleness),
                        "use 0 or more: how many gradients a worker may be ahead of the slowest");
    return std::make_unique<BoundedStaleness>(options.staleness, workers);
  }
  if (options.name == "backup") {
    const int most = static_cast<int>(workers.size()) - 1;
    // With fewer workers than it began with, a run goes on with fewer to spare.
    if (options.backup < 0)
      throw input_error(fmt::format("strategy.backup = {} is out of range", options.backup),
                        "use 0 or more: how many gradients a round does not wait for");
    return std::make_unique<Backup>(std::min(options.backup, most), workers);
  }
  if (options.name == "tasks")
    return std::make_unique<Tasks>(options.tasks > 0 ? options.tasks : workers.size());
  if (options.name == "gossip")
    return std::make_unique<Gossip>(options.ring, options.seed, workers);
  throw input_error(fmt::format("strategy.consistency = \"{}\" is not known", options.name),
                    "use sync, async, ssp or backup");
}

}  // namespace starling
