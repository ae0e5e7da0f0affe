#include "param/conductor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Order lend(int worker, SampleRange samples) {
  return {.kind = Order::Kind::kLend, .worker = worker, .samples = samples, .pushes = {}};
}
Order apply(std::vector<Push> pushes) {
  return {.kind = Order::Kind::kApply, .worker = -1, .samples = {}, .pushes = std::move(pushes)};
}
Order drop(const Push& push) {
  return {.kind = Order::Kind::kDrop, .worker = push.worker, .samples = {}, .pushes = {push}};
}
Push push(int worker, SampleRange samples, uint64_t version = 0) {
  return {.worker = worker,
          .samples = samples,
          .version = version,
          .finite = true,
          .seconds = 0,
          .sums = {}};
}
const Order kOver{};

// Leases have 10 samples as long as speeds are not known.
Stretch a_stretch(uint64_t samples, const ConsistencyOptions& consistency, int workers = 2,
                  PartitionKind partition = PartitionKind::kDynamic) {
  const bool spares = consistency.name == "backup";
  Stretch stretch{.workers = {},
                  .free = SampleRanges({0, samples}),
                  .batch = 10 * static_cast<uint64_t>(workers - (spares ? consistency.backup : 0)),
                  .version = 0,
                  .consistency = consistency,
                  .partition = partition,
                  .speeds = {}};
  for (int worker = 0; worker < workers; ++worker) stretch.workers.push_back(worker);
  return stretch;
}

TEST(Conductor, AsyncAppliesAsTheyCome) {
  Conductor conductor(a_stretch(30, {.name = "async"}));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  const Push first = push(1, {10, 20}), second = push(1, {20, 30}, 1), last = push(0, {0, 10});
  EXPECT_THAT(conductor.pushed(first), ElementsAre(apply({first}), lend(1, {20, 30})));
  EXPECT_THAT(conductor.pushed(second), ElementsAre(apply({second})));
  EXPECT_THAT(conductor.pushed(last), ElementsAre(apply({last}), kOver));
  EXPECT_EQ(conductor.version(), 3u);
}

TEST(Conductor, BoundedStalenessHoldsTheFast) {
  Conductor conductor(a_stretch(100, {.name = "ssp", .staleness = 1}));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  const Push first = push(1, {10, 20}), second = push(1, {20, 30}), late = push(0, {0, 10});
  EXPECT_THAT(conductor.pushed(first), ElementsAre(apply({first}), lend(1, {20, 30})));
  EXPECT_THAT(conductor.pushed(second), ElementsAre(apply({second}))) << "it is 2 ahead";
  EXPECT_THAT(conductor.pushed(late),
              ElementsAre(apply({late}), lend(1, {30, 40}), lend(0, {40, 50})));
}

TEST(Conductor, LendsAheadOfTheGradientThatIsComputed) {
  Stretch stretch = a_stretch(60, {.name = "async"});
  stretch.ahead = 1;
  Conductor conductor(stretch);
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20}), lend(0, {20, 30}),
                                             lend(1, {30, 40})));
  const Push first = push(1, {10, 20}), second = push(1, {30, 40}), third = push(1, {40, 50}, 1);
  EXPECT_THAT(conductor.pushed(second), IsEmpty()) << "it was to give another one before";
  EXPECT_THAT(conductor.pushed(first), ElementsAre(apply({first}), lend(1, {40, 50})));
  EXPECT_THAT(conductor.pushed(second), ElementsAre(apply({second}), lend(1, {50, 60})));
  EXPECT_THAT(conductor.drain(), IsEmpty());
  EXPECT_THAT(conductor.pushed(third), ElementsAre(apply({third})));
}

TEST(Conductor, TheBoundIsOfWhatIsLentAheadToo) {
  Stretch stretch = a_stretch(100, {.name = "ssp", .staleness = 1});
  stretch.ahead = 3;
  Conductor conductor(stretch);
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20}), lend(0, {20, 30}),
                                             lend(1, {30, 40})));
  const Push first = push(1, {10, 20}), late = push(0, {0, 10});
  EXPECT_THAT(conductor.pushed(first), ElementsAre(apply({first}))) << "it has begun 2, and 0 none";
  EXPECT_THAT(conductor.pushed(late),
              ElementsAre(apply({late}), lend(0, {40, 50}), lend(1, {50, 60})));
}

TEST(Conductor, ARoundHasOneGradientOfEach) {
  Stretch stretch = a_stretch(60, {.name = "backup", .backup = 1});
  stretch.ahead = 3;
  EXPECT_THAT(Conductor(stretch).begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
}

TEST(Conductor, ARoundWithBackupGoesWithoutTheLast) {
  Conductor conductor(a_stretch(60, {.name = "backup", .backup = 1}, 3));
  EXPECT_THAT(conductor.begin(),
              ElementsAre(lend(0, {0, 10}), lend(1, {10, 20}), lend(2, {20, 30})));
  const Push a = push(2, {20, 30}), b = push(0, {0, 10}), late = push(1, {10, 20});
  EXPECT_THAT(conductor.pushed(a), IsEmpty());
  EXPECT_THAT(conductor.pushed(b), ElementsAre(apply({b, a}), lend(0, {30, 40}), lend(2, {40, 50})))
      << "in the order of names, whoever came first";
  EXPECT_THAT(conductor.pushed(late), ElementsAre(drop(late), lend(1, {10, 20})));
  EXPECT_EQ(conductor.dropped(), 1u);
}

TEST(Conductor, TheLastRoundIsMadeOfWhatThereIs) {
  Conductor conductor(a_stretch(10, {.name = "backup", .backup = 1}, 3));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10})));
  EXPECT_THAT(conductor.pushed(push(0, {0, 10})), ElementsAre(apply({push(0, {0, 10})}), kOver));
}

TEST(Conductor, DrainsWhenItIsAskedTo) {
  Conductor conductor(a_stretch(1000, {.name = "backup", .backup = 0}));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  EXPECT_THAT(conductor.drain(), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(1, {10, 20})), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(0, {0, 10})),
              ElementsAre(apply({push(0, {0, 10}), push(1, {10, 20})}), kOver));
  EXPECT_THAT(conductor.drain(), IsEmpty());
}

TEST(Conductor, WhoHasUsedItsShareRestsAndHoldsNobody) {
  Conductor conductor(a_stretch(45, {.name = "ssp", .staleness = 0}, 3, PartitionKind::kEqual));
  EXPECT_THAT(conductor.begin(),
              ElementsAre(lend(0, {0, 10}), lend(1, {10, 20}), lend(2, {20, 30})));
  const Push a = push(0, {0, 10}), b = push(1, {10, 20}), c = push(2, {20, 30});
  EXPECT_THAT(conductor.pushed(a), ElementsAre(apply({a})));
  EXPECT_THAT(conductor.pushed(b), ElementsAre(apply({b})));
  EXPECT_THAT(conductor.pushed(c),
              ElementsAre(apply({c}), lend(0, {30, 35}), lend(1, {35, 40}), lend(2, {40, 45})));
  const Push last = push(2, {40, 45}), mid = push(0, {30, 35}), end = push(1, {35, 40});
  EXPECT_THAT(conductor.pushed(last), ElementsAre(apply({last})));
  EXPECT_THAT(conductor.pushed(mid), ElementsAre(apply({mid})));
  EXPECT_THAT(conductor.pushed(end), ElementsAre(apply({end}), kOver));
}

TEST(Conductor, ARoundDoesNotWaitForThoseThatRest) {
  Conductor conductor(a_stretch(3, {.name = "backup", .backup = 0}, 4, PartitionKind::kEqual));
  // One of the four has no share at all.
  const std::vector<Order> begun = conductor.begin();
  ASSERT_EQ(begun.size(), 3u);
  EXPECT_THAT(conductor.pushed(push(begun[0].worker, begun[0].samples)), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(begun[1].worker, begun[1].samples)), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(begun[2].worker, begun[2].samples)), testing::SizeIs(2));
  EXPECT_TRUE(conductor.is_over());
}

TEST(Conductor, SharesFollowTheSpeedsThatAreKnown) {
  Stretch stretch = a_stretch(100, {.name = "async"}, 3, PartitionKind::kWeighted);
  stretch.speeds = {100, 0, 300};  // the second counts as the mean: 200
  Conductor conductor(stretch);
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 5}), lend(1, {5, 15}), lend(2, {15, 30})));
  std::map<int, uint64_t> used;
  std::map<int, SampleRange> lent{{0, {0, 5}}, {1, {5, 15}}, {2, {15, 30}}};
  while (!lent.empty()) {
    const auto [worker, samples] = *lent.begin();
    lent.erase(lent.begin());
    used[worker] += samples.size();
    for (const Order& order : conductor.pushed(push(worker, samples)))
      if (order.kind == Order::Kind::kLend) lent[order.worker] = order.samples;
  }
  EXPECT_TRUE(conductor.is_over());
  EXPECT_THAT(used, ElementsAre(std::pair(0, 17u), std::pair(1, 33u), std::pair(2, 50u)));
}

TEST(Conductor, WithNothingToDoIsOverAtOnce) {
  EXPECT_THAT(Conductor(a_stretch(0, {.name = "async"})).begin(), ElementsAre(kOver));
}

TEST(Conductor, IgnoresWhatNobodyWaitsFor) {
  Conductor conductor(a_stretch(30, {.name = "async"}));
  static_cast<void>(conductor.begin());
  EXPECT_THAT(conductor.pushed(push(7, {0, 10})), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(0, {10, 20})), IsEmpty());
  EXPECT_THAT(conductor.pushed(push(0, {0, 10})), testing::SizeIs(2));
  EXPECT_THAT(conductor.pushed(push(0, {0, 10})), IsEmpty()) << "twice";
}

TEST(Conductor, RefusesWhatMakesNoSense) {
  const auto error = [](const ConsistencyOptions& options) -> std::string {
    return error_of([&] { make_consistency(options, {0, 1}); }).what();
  };
  EXPECT_THAT(error({.name = "ssp", .staleness = -1}), HasSubstr("strategy.staleness = -1"));
  EXPECT_THAT(error({.name = "backup", .backup = -1}), HasSubstr("strategy.backup = -1"));
  EXPECT_THAT(error({.name = "eventual"}), HasSubstr("eventual"));
  EXPECT_THAT(error_of([] { partition_from_name("fair"); }).what(), HasSubstr("fair"));
}

// Workers of random speed, stretches that are cut at random, as by a loss, or drained: whatever
// happens, every sample is used just once, versions are counted, and what the policy promises
// holds.
class ManyStretches {
 public:
  explicit ManyStretches(uint64_t seed) : random_(seed) {
    workers_ = 1 + draw(6);
    samples_ = draw(400);
    batch_ = 1 + draw(90);
    partition_ = static_cast<PartitionKind>(draw(2));
    laggard_ = draw(1);
    ahead_ = draw(1) == 0 ? 0 : static_cast<uint32_t>(1 + draw(2));
    const char* const names[] = {"async", "ssp", "backup", "tasks", "gossip"};
    options_ = {.name = names[draw(4)],
                .staleness = static_cast<int>(draw(4)),
                .backup = static_cast<int>(draw(3)),
                .tasks = draw(8),
                .ring = draw(1) == 0,
                .seed = seed};
    if (has_tasks()) partition_ = PartitionKind::kDynamic;
  }

  void run() {
    SampleRanges free(SampleRange{0, samples_});
    used_.assign(samples_, 0);
    for (int stretches = 0; !free.empty() || stretches == 0; ++stretches) {
      ASSERT_LT(stretches, 1000);
      const uint64_t before = free.size();
      ASSERT_NO_FATAL_FAILURE(run_stretch(free, stretches));
      ASSERT_LE(free.size(), before);
      if (draw(3) == 0) workers_ = 1 + draw(6);  // others are there now
    }
    EXPECT_TRUE(std::all_of(used_.begin(), used_.end(), [](int times) { return times == 1; }));
    EXPECT_EQ(version_, updates_);
  }

 private:
  uint64_t draw(uint64_t most) { return random_() % (most + 1); }

  void run_stretch(SampleRanges& free, int stretches) {
    std::vector<int> names;
    std::vector<double> speeds;
    for (uint64_t i = 0; i < workers_; ++i) {
      names.push_back(static_cast<int>(10 * i + draw(9)));
      speeds.push_back(draw(2) == 0 ? 0 : 0.1 * static_cast<double>(1 + draw(1000)));
    }
    const uint64_t samples = free.size();
    Conductor conductor({.workers = names,
                         .free = free,
                         .batch = batch_,
                         .version = version_,
                         .consistency = options_,
                         .partition = partition_,
                         .ahead = ahead_,
                         .speeds = speeds});
    lent_.clear();
    turns_.clear();
    shares_.clear();
    meets_.clear();
    met_.clear();
    for (const int name : names) shares_[name] = 0;
    // A cut may come again and again, but not for ever.
    const uint64_t cut = stretches < 20 ? draw(60) : 1'000'000, drained = draw(200);
    bool over = false;
    const auto obey = [&](const std::vector<Order>& orders) {
      for (const Order& order : orders) {
        ASSERT_FALSE(over) << "nothing comes after the end";
        ASSERT_NO_FATAL_FAILURE(take(order, free));
        over = order.kind == Order::Kind::kOver;
      }
    };
    ASSERT_NO_FATAL_FAILURE(obey(conductor.begin()));
    for (uint64_t event = 0; !over && event < cut; ++event) {
      if (event == drained) {
        ASSERT_NO_FATAL_FAILURE(obey(conductor.drain()));
      }
      if (over) break;
      ASSERT_FALSE(lent_.empty()) << "nobody works, and it is not over";
      // The laggard gives nothing as long as any other has something to give.
      const uint64_t first = laggard_ && lent_.size() > 1 ? 1 : 0;
      const auto next =
          std::next(lent_.begin(), static_cast<long>(first + draw(lent_.size() - 1 - first)));
      Push push{.worker = next->first,
                .samples = next->second.front().samples,
                .version = next->second.front().version,
                .finite = true,
                .seconds = 0.01 * static_cast<double>(draw(100)),
                .sums = {},
                .met = met_[next->first]};
      // A meeting is over, sooner or later.
      if (meets_.contains(push.worker) && draw(1) == 0) {
        meets_.erase(push.worker);
        push.met = ++met_[push.worker];
      }
      next->second.pop_front();
      if (next->second.empty()) lent_.erase(next);
      ASSERT_NO_FATAL_FAILURE(obey(conductor.pushed(push)));
    }
    EXPECT_EQ(conductor.is_over(), over);
    if (!over) {
      ASSERT_NO_FATAL_FAILURE(obey(conductor.cut_off()));
    }
    EXPECT_EQ(added_, 0u) << "what was added is in no update";
    if (over) {
      EXPECT_TRUE(lent_.empty());
    }
    if (over && free.empty() && partition_ == PartitionKind::kEqual) {
      for (const auto& [worker, share] : shares_) {
        EXPECT_GE(share, samples / workers_);
        EXPECT_LE(share, samples / workers_ + 1);
      }
    }
    if (options_.name == "ssp") expect_bound();
    version_ = conductor.version();
  }

  // Whoever began a gradient was not too far ahead of any that had something to give later on.
  void expect_bound() const {
    std::map<int, int64_t> begun, come;  // gradients
    std::map<int, size_t> last;          // turn
    for (size_t i = 0; i < turns_.size(); ++i) last[turns_[i].worker] = i;
    for (size_t i = 0; i < turns_.size(); ++i) {
      if (!turns_[i].begins) {
        ++come[turns_[i].worker];
        continue;
      }
      for (const auto& [other, turn] : last) {
        if (turn > i) {
          EXPECT_LE(begun[turns_[i].worker] - come[other], options_.staleness);
        }
      }
      ++begun[turns_[i].worker];
    }
  }

  void take(const Order& order, SampleRanges& free) {
    switch (order.kind) {
      case Order::Kind::kLend:
        ASSERT_LE(order.samples.size(), batch_);
        turns_.push_back({order.worker, true});
        ASSERT_GT(order.samples.size(), 0u);
        lent_[order.worker].push_back({order.samples, updates_});
        ASSERT_LE(lent_[order.worker].size(), lends_ahead() ? 1 + ahead_ : 1);
        break;
      case Order::Kind::kApply:
        ASSERT_EQ(order.pushes.empty(), has_tasks());
        if (has_tasks()) {
          ASSERT_GT(added_, 0u);
        }
        added_ = 0;
        for (const Push& push : order.pushes) {
          for (uint64_t place = push.samples.begin; place < push.samples.end; ++place)
            ++used_[place];
          free.remove(push.samples);
          shares_[push.worker] += push.samples.size();
          turns_.push_back({push.worker, false});
          if (options_.name == "backup") {
            EXPECT_EQ(push.version, updates_) << "of another round";
          }
        }
        if (options_.name != "backup" && !has_tasks()) {
          EXPECT_EQ(order.pushes.size(), 1u);
        }
        ++updates_;
        break;
      case Order::Kind::kAdd:
        ASSERT_EQ(order.pushes.size(), 1u);
        ASSERT_TRUE(has_tasks());
        ++added_;
        EXPECT_EQ(order.pushes[0].version, updates_) << "of another round";
        for (uint64_t place = order.pushes[0].samples.begin; place < order.pushes[0].samples.end;
             ++place)
          ++used_[place];
        free.remove(order.pushes[0].samples);
        break;
      case Order::Kind::kDrop:
        EXPECT_TRUE(options_.name == "backup" || has_tasks());
        if (has_tasks()) {
          EXPECT_EQ(used_[order.pushes.at(0).samples.begin], 1);
        }
        ASSERT_EQ(order.pushes.size(), 1u);
        EXPECT_EQ(order.pushes[0].worker, order.worker);
        break;
      case Order::Kind::kMeet:
        take_meeting(order);
        break;
      case Order::Kind::kOver:
        break;
    }
  }

  // Nobody is called to a meeting who is in one, and only those of the stretch are.
  void take_meeting(const Order& order) {
    EXPECT_EQ(options_.name, "gossip");
    EXPECT_NE(order.worker, order.partner);
    for (const int worker : {order.worker, order.partner}) {
      EXPECT_TRUE(shares_.contains(worker));
      EXPECT_TRUE(meets_.insert(worker).second) << worker << " is in a meeting";
    }
    ++meetings_;
  }

  bool has_tasks() const { return options_.name == "tasks"; }
  bool lends_ahead() const { return options_.name == "async" || options_.name == "ssp"; }

  struct Lent {
    SampleRange samples;
    uint64_t version;
  };
  std::mt19937_64 random_;
  uint64_t workers_, samples_, batch_;
  ConsistencyOptions options_;
  PartitionKind partition_;
  bool laggard_;
  uint32_t ahead_;
  std::vector<int> used_;
  uint64_t version_ = 0, updates_ = 0;
  uint64_t added_ = 0;  // to the round
  std::set<int> meets_;
  std::map<int, uint64_t> met_;
  uint64_t meetings_ = 0;
  std::map<int, std::deque<Lent>> lent_;
  struct Turn {
    int worker;
    bool begins;  // else its gradient is applied
  };
  std::vector<Turn> turns_;         // of the stretch
  std::map<int, uint64_t> shares_;  // of the stretch: samples applied, by worker
};

Order add(const Push& push) {
  return {.kind = Order::Kind::kAdd, .worker = push.worker, .samples = {}, .pushes = {push}};
}
const Order kClose = apply({});

TEST(Conductor, ARoundIsCompleteWhenEveryTaskIsHandedIn) {
  Conductor conductor(a_stretch(60, {.name = "tasks", .tasks = 3}));  // of 7 samples, 20 / 3
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 7}), lend(1, {7, 14})));
  const Push a = push(0, {0, 7}), b = push(0, {14, 21});
  Push c = push(1, {7, 14});
  c.seconds = 0.1;
  EXPECT_THAT(conductor.pushed(a), ElementsAre(add(a), lend(0, {14, 21})));
  EXPECT_THAT(conductor.pushed(c), ElementsAre(add(c), lend(1, {14, 21})))
      << "who is at the last task is not known to be fast";
  EXPECT_THAT(conductor.pushed(b), ElementsAre(add(b), kClose, lend(0, {21, 28})));
  EXPECT_EQ(conductor.version(), 1u);
}

TEST(Conductor, TasksOfTheSlowAreLentAgainAndTheFirstHandInCounts) {
  Stretch stretch = a_stretch(40, {.name = "tasks"});
  stretch.speeds = {1, 10};
  Conductor conductor(stretch);
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  const Push fast = push(1, {10, 20}), again = push(1, {0, 10}), slow = push(0, {0, 10});
  EXPECT_THAT(conductor.pushed(fast), ElementsAre(add(fast), lend(1, {0, 10})));
  EXPECT_THAT(conductor.pushed(again), ElementsAre(add(again), kClose, lend(1, {20, 30})));
  EXPECT_THAT(conductor.pushed(slow), ElementsAre(drop(slow), lend(0, {30, 40})));
  EXPECT_EQ(conductor.dropped(), 1u);
}

// Of those that have done nothing yet nobody is known to be slow.
TEST(Conductor, NoTaskIsLentAgainInTheBeginning) {
  Conductor conductor(a_stretch(80, {.name = "tasks", .tasks = 2}, 4));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 20}), lend(1, {20, 40})));
}

// No samples are left for a round of a few.
TEST(Conductor, ARoundOfAllSamplesIsOne) {
  for (const uint64_t tasks : {3, 7, 11, 13, 19, 60, 99}) {
    Conductor conductor(a_stretch(100, {.name = "tasks", .tasks = tasks}, 10));
    uint64_t closed = 0;
    std::deque<Order> lent;
    for (std::vector<Order> orders = conductor.begin(); !conductor.is_over();) {
      for (const Order& order : orders) {
        if (order.kind == Order::Kind::kLend) lent.push_back(order);
      }
      ASSERT_FALSE(lent.empty());
      orders = conductor.pushed(push(lent.front().worker, lent.front().samples));
      lent.pop_front();
      closed += static_cast<uint64_t>(std::count(orders.begin(), orders.end(), kClose));
    }
    EXPECT_EQ(closed, 1u) << tasks;
  }
}

TEST(Conductor, TasksOfEquallyFastWorkersAreDoneOnce) {
  Stretch stretch = a_stretch(40, {.name = "tasks"});
  stretch.speeds = {6, 10};
  Conductor conductor(stretch);
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  EXPECT_THAT(conductor.pushed(push(1, {10, 20})), ElementsAre(add(push(1, {10, 20}))));
  EXPECT_THAT(conductor.pushed(push(0, {0, 10})),
              ElementsAre(add(push(0, {0, 10})), kClose, lend(1, {20, 30}), lend(0, {30, 40})));
}

TEST(Conductor, WhatWasHandedInCountsWhenAWorkerIsLost) {
  Conductor conductor(a_stretch(40, {.name = "tasks"}, 3));
  EXPECT_EQ(conductor.begin().size(), 3u);
  EXPECT_THAT(conductor.pushed(push(1, {10, 20})), ElementsAre(add(push(1, {10, 20}))));
  EXPECT_THAT(conductor.cut_off(), ElementsAre(kClose));
  EXPECT_TRUE(conductor.is_over());
}

TEST(Conductor, NothingIsClosedWhereNothingWasHandedIn) {
  Conductor conductor(a_stretch(40, {.name = "tasks"}));
  EXPECT_EQ(conductor.begin().size(), 2u);
  EXPECT_THAT(conductor.cut_off(), IsEmpty());
}

Order meet(int worker, int partner) {
  return {.kind = Order::Kind::kMeet,
          .worker = worker,
          .partner = partner,
          .samples = {},
          .pushes = {}};
}

TEST(Conductor, WhoHasHandedInMeetsAnotherThatIsFree) {
  Conductor conductor(a_stretch(60, {.name = "gossip"}));
  EXPECT_THAT(conductor.begin(), ElementsAre(lend(0, {0, 10}), lend(1, {10, 20})));
  const Push first = push(1, {10, 20}), second = push(0, {0, 10});
  EXPECT_THAT(conductor.pushed(first), ElementsAre(apply({first}), meet(1, 0), lend(1, {20, 30})));
  EXPECT_THAT(conductor.pushed(second), ElementsAre(apply({second}), lend(0, {30, 40})))
      << "it has not met 1 yet";
  Push third = push(1, {20, 30}, 1), fourth = push(0, {30, 40}, 2);
  third.met = 1;
  EXPECT_THAT(conductor.pushed(third), ElementsAre(apply({third}), lend(1, {40, 50})))
      << "of 0 it is not known that it has";
  fourth.met = 1;
  EXPECT_THAT(conductor.pushed(fourth),
              ElementsAre(apply({fourth}), meet(0, 1), lend(0, {50, 60})));
}

TEST(Conductor, InARingNeighboursMeetInTurns) {
  Conductor conductor(a_stretch(1000, {.name = "gossip", .ring = true}, 5));
  EXPECT_EQ(conductor.begin().size(), 5u);
  std::vector<int> partners;
  SampleRange samples{20, 30};  // of worker 2
  for (uint64_t turn = 0; turn < 4; ++turn) {
    Push pushed = push(2, samples, turn);
    pushed.met = turn;
    for (const Order& order : conductor.pushed(pushed)) {
      if (order.kind == Order::Kind::kMeet) partners.push_back(order.partner);
      if (order.kind == Order::Kind::kLend) samples = order.samples;
    }
  }
  EXPECT_THAT(partners, ElementsAre(3, 1)) << "and then they are not known to be free";
}

TEST(Conductor, WhoMeetsWhomIsDrawnEvenly) {
  std::map<int, int> times;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Conductor conductor(a_stretch(1000, {.name = "gossip", .seed = seed}, 5));
    EXPECT_EQ(conductor.begin().size(), 5u);
    for (const Order& order : conductor.pushed(push(2, {20, 30}))) {
      if (order.kind == Order::Kind::kMeet) ++times[order.partner];
    }
  }
  ASSERT_EQ(times.size(), 4u);
  for (const auto& [partner, count] : times) EXPECT_GT(count, 70) << partner;
}

TEST(Conductor, UsesEverySampleOnceWhateverHappens) {
  for (uint64_t seed = 0; seed < 10'000; ++seed) {
    SCOPED_TRACE(seed);
    ManyStretches(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace starling
