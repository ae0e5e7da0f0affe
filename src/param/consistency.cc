#include "param/consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "starling/error.h"

namespace starling {
namespace {

// Each gradient is an update, as it comes.
class Async final : public Consistency {
 public:
  bool may_begin(int) const override { return true; }
  void begin(int) override {}
  Fate arrive(int worker) override { return {.applied = {worker}, .dropped = {}}; }
  bool waits() const override { return false; }
};

// The same, but no worker is further ahead of the slowest than the bound.
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
    return {.applied = {worker}, .dropped = {}};
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
    if (last_round_.at(worker) < round_) return {.applied = {}, .dropped = {worker}};
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
    return {.applied = std::exchange(arrived_, {}), .dropped = {}};
  }

  const size_t spare_;
  size_t there_;  // workers that take part
  int64_t round_ = 0;
  std::map<int, int64_t> last_round_;  // for which the worker began a gradient
  std::set<int> under_way_;            // whose gradient has not come
  std::vector<int> arrived_;           // in this round
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
  throw input_error(fmt::format("strategy.consistency = \"{}\" is not known", options.name),
                    "use sync, async, ssp or backup");
}

}  // namespace starling
