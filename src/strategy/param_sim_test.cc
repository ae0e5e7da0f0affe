// The protocol of the parameter service under sim: workers and servers that die and freeze at any
// moment, messages that are slow, stretch after stretch until every sample is used. What the
// conductor ordered is repeated by a plain loop, and everything that is left has to be just that:
// no update that counted is lost, none is made twice or in part, no gradient is older than allowed,
// and no sample is used twice.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

#include "fabric/sim/sim.h"
#include "fabric/sim/sim_testing.h"
#include "param/orders_words.h"
#include "strategy/param_peer.h"

namespace starling {
namespace {

using std::chrono::microseconds;

constexpr Tag kOrdersTag = 1, kPushedTag = 2;
constexpr size_t kWordsMost = 4096;
constexpr uint64_t kSamples = 120;

const ParameterSpace& space() {
  static const ParameterSpace made = [] {
    ParameterSpace space;
    for (int i = 0; i < 7; ++i)
      space.add("parameter " + std::to_string(i), {16},
                {.weight_decay = i % 2 == 0 ? std::optional<double>() : 0.0});
    return space;
  }();
  return made;
}

// Whatever has weights and optimizer state.
struct State {
  State() : weights(space().total_floats()), momentum(space().total_floats()) {}
  std::vector<float> weights, momentum;
  bool operator==(const State&) const = default;
};

const Optimizer kOptimizer = momentum(0.05);

const UpdateRules kRules{.optimizer = kOptimizer,
                         .batch = 12,
                         .usual = 5,
                         .total_steps = 100,
                         .apart = 3,
                         .damping = 0.1};

// It depends on weights and samples, so that a gradient of others is another one.
std::vector<float> gradient_of(std::span<const float> weights, SampleRange samples) {
  std::vector<float> gradient(weights.size());
  for (size_t i = 0; i < weights.size(); ++i)
    gradient[i] = 0.3f * weights[i] + static_cast<float>((samples.begin * 7 + i) % 13) - 6.0f;
  return gradient;
}

// What there is of a run between two stretches.
struct Job {
  State state;
  uint64_t version = 0;
  SampleRanges free{{0, kSamples}};
  std::vector<int> members;  // names
  int servers = 0;           // the first so many only serve
  ConsistencyOptions consistency;
  bool desks = false;
  uint32_t ahead = 0;

  bool has_tasks() const { return consistency.name == "tasks"; }
  UpdateRules rules() const {
    UpdateRules made = kRules;
    made.whole = has_tasks();
    return made;
  }
  size_t leases() const { return consistency.name == "backup" || has_tasks() ? 1 : 1 + ahead; }

  // Where there are none of a kind, all are of both.
  bool has_roles() const {
    const auto count =
        std::count_if(members.begin(), members.end(), [&](int name) { return name < servers; });
    return count > 0 && static_cast<size_t>(count) < members.size();
  }
  bool computes(size_t rank) const { return !has_roles() || members[rank] >= servers; }
  bool serves(size_t rank) const { return !has_roles() || members[rank] < servers; }
  Ownership owners() const {
    std::vector<int> who, keepers;
    size_t serving = 0;
    for (size_t rank = 0; rank < members.size(); ++rank) serving += serves(rank) ? 1 : 0;
    for (size_t rank = 0; rank < members.size(); ++rank) {
      const bool keeps = serving == 1 && keepers.empty() && !serves(rank);
      if (serves(rank) || keeps) who.push_back(members[rank]);
      if (keeps) keepers.push_back(members[rank]);
    }
    return {space(), who, 1, keepers};
  }
  Stretch stretch() const {
    Stretch made{.workers = {},
                 .free = free,
                 .batch = 12,
                 .version = version,
                 .consistency = consistency,
                 .ahead = ahead,
                 .speeds = {}};
    for (size_t rank = 0; rank < members.size(); ++rank) {
      if (computes(rank)) made.workers.push_back(members[rank]);
    }
    return made;
  }
};

struct Send {
  std::vector<uint64_t> words;
  Ticket ticket;
};

// The launcher, for one stretch: the last rank.
class Launcher {
 public:
  Launcher(Fabric& fabric, const Job& run) : fabric_(fabric), conductor_(run.stretch()) {
    const auto members = static_cast<int>(run.members.size());
    rooms_.resize(run.members.size(), std::vector<uint64_t>(kWordsMost));
    for (int rank = 0; rank < members; ++rank) listen(rank);
    give(conductor_.begin());
  }

  bool advance(bool drains) {
    for (size_t rank = 0; rank < tickets_.size(); ++rank) hear(rank);
    if (drains && !cut_) give(conductor_.drain());
    for (size_t rank = 0; rank < tickets_.size() && !conductor_.is_over(); ++rank) {
      if (fabric_.gone(static_cast<int>(rank))) cut();
    }
    std::erase_if(sends_, [&](Send& send) { return !fabric_.poll(send.ticket).pending(); });
    fabric_.progress(fabric_.now() + std::chrono::milliseconds(1));
    return (cut_ || conductor_.is_over()) && sends_.empty();
  }

  const std::vector<Order>& log() const { return log_; }
  bool was_cut() const { return cut_; }

 private:
  void listen(int rank) {
    tickets_.resize(rooms_.size());
    tickets_[static_cast<size_t>(rank)] = fabric_.start_receive_up_to(
        rank, kPushedTag, std::as_writable_bytes(std::span(rooms_[static_cast<size_t>(rank)])));
  }
  void hear(size_t rank) {
    if (!tickets_[rank]) return;
    const Transfer transfer = fabric_.poll(tickets_[rank]);
    if (transfer.pending()) return;
    tickets_[rank] = Ticket();
    if (transfer.failed()) return;
    const std::span<const uint64_t> words(rooms_[rank].data(), transfer.bytes / sizeof(uint64_t));
    const std::optional<Push> push = push_of(words);
    ASSERT_TRUE(push);
    if (!cut_) give(conductor_.pushed(*push));
    listen(static_cast<int>(rank));
  }
  void cut() {
    give(conductor_.cut_off());
    cut_ = true;
    for (size_t rank = 0; rank < rooms_.size(); ++rank) send(rank, {});
  }
  void give(const std::vector<Order>& orders) {
    if (orders.empty()) return;
    log_.insert(log_.end(), orders.begin(), orders.end());
    for (size_t rank = 0; rank < rooms_.size(); ++rank) send(rank, to_words(orders));
  }
  void send(size_t rank, std::vector<uint64_t> words) {
    Send& sent = sends_.emplace_back(Send{std::move(words), {}});
    sent.ticket = fabric_.start_send(static_cast<int>(rank), kOrdersTag,
                                     std::as_bytes(std::span(sent.words)));
  }

  Fabric& fabric_;
  Conductor conductor_;
  std::vector<std::vector<uint64_t>> rooms_;
  std::vector<Ticket> tickets_;
  std::deque<Send> sends_;
  std::vector<Order> log_;
  bool cut_ = false;
};

// A process of the run, for one stretch.
class Member {
 public:
  Member(Fabric& fabric, const Job& run, const Ownership& owners, const Desks& desks,
         const std::vector<Seat>& seats, uint64_t seed)
      : fabric_(fabric),
        dice_(seed),
        state_(run.state),
        seats_(seats),
        launcher_(static_cast<int>(run.members.size())),
        name_(run.members[static_cast<size_t>(fabric.rank())]) {
    std::copy(state_.weights.begin(), state_.weights.end(), seats_[0].weights.begin());
    // What is not kept here is of no use.
    state_.momentum.assign(state_.momentum.size(), -1e9f);
    if (const auto slice = owners.slice_of(name_)) {
      for (const Span& kept : owners.kept_by(*slice))
        std::copy(run.state.momentum.begin() + static_cast<std::ptrdiff_t>(kept.begin),
                  run.state.momentum.begin() + static_cast<std::ptrdiff_t>(kept.end),
                  state_.momentum.begin() + static_cast<std::ptrdiff_t>(kept.begin));
    }
    ParamPeerOptions options{
        .names = run.members,
        .computes = {},
        .space = &space(),
        .owners = &owners,
        .state = [this](size_t, size_t offset) { return state_.momentum.data() + offset; },
        .rules = run.rules(),
        .version = run.version,
        .samples = kSamples - run.free.size(),
        .seats = {},
        .desks = &desks,
        .bucket_bytes = 40 * sizeof(float)};
    for (size_t rank = 0; rank < run.members.size(); ++rank)
      options.computes.push_back(run.computes(rank));
    for (const Seat& seat : seats) options.seats.push_back(seat.weights);
    peer_.emplace(fabric, std::move(options));
    listen();
  }

  bool advance() {
    while (hear()) {
    }
    if (ended_) return true;
    bool moved = peer_->status() && peer_->advance();
    if (!computing_ && peer_->status()) {
      if (const auto lease = peer_->take_lease()) {
        computing_ = lease;
        took_ = microseconds(dice_.below(dice_.below(10) == 0 ? 4000 : 200));
        done_at_ = fabric_.now() + took_;
        // As a worker would: from the first moment on the last gradient is overwritten.
        const std::span<float> gradient = seats_[lease->seat].gradient;
        std::fill(gradient.begin(), gradient.end(), 1e9f);
        moved = true;
      }
    }
    if (computing_ && fabric_.now() >= done_at_ && peer_->status()) {
      push();
      moved = true;
    }
    while (const std::optional<Push> pushed = peer_->take_pushed()) {
      told_.push_back({to_words(*pushed), {}});
      told_.back().ticket =
          fabric_.start_send(launcher_, kPushedTag, std::as_bytes(std::span(told_.back().words)));
      moved = true;
    }
    const Instant soon = fabric_.now() + microseconds(moved ? 1 : 500);
    fabric_.progress(
        computing_ ? std::min(std::max(done_at_, fabric_.now() + microseconds(1)), soon) : soon);
    return false;
  }

  const std::vector<Order>& log() const { return peer_->log(); }
  // The kept slices, brought up to date in the weights.
  const State& settle() {
    peer_->take_over();
    std::copy(seats_[0].weights.begin(), seats_[0].weights.end(), state_.weights.begin());
    return state_;
  }

 private:
  void listen() {
    ticket_ = fabric_.start_receive_up_to(launcher_, kOrdersTag,
                                          std::as_writable_bytes(std::span(room_)));
  }
  bool hear() {
    if (ended_) return false;
    const Transfer transfer = fabric_.poll(ticket_);
    if (transfer.pending()) return false;
    ticket_ = Ticket();
    EXPECT_FALSE(transfer.failed());
    if (transfer.bytes == 0) {
      peer_->cut_off({FailureKind::kStaleView, -1, "a new view began"});
      return !(ended_ = true);
    }
    const auto orders = orders_of({room_.data(), transfer.bytes / sizeof(uint64_t)});
    EXPECT_TRUE(orders);
    for (const Order& order : *orders) peer_->obey(order);
    ended_ = peer_->is_over();
    if (!ended_) listen();
    return !ended_;
  }
  void push() {
    const Seat& seat = seats_[computing_->seat];
    const std::vector<float> made = gradient_of(seat.weights, computing_->samples);
    std::copy(made.begin(), made.end(), seat.gradient.begin());
    for (size_t bucket = 0; bucket < peer_->buckets().size(); ++bucket) {
      if (dice_.below(2) == 0) peer_->push_bucket(seat.gradient, bucket);
    }
    peer_->push(seat.gradient, {.worker = name_,
                                .samples = computing_->samples,
                                .version = computing_->version,
                                .finite = true,
                                .seconds = std::chrono::duration<double>(took_).count(),
                                .sums = {}});
    computing_.reset();
  }

  Fabric& fabric_;
  Dice dice_;
  State state_;
  const std::vector<Seat>& seats_;
  const int launcher_, name_;
  std::vector<uint64_t> room_ = std::vector<uint64_t>(kWordsMost);
  Ticket ticket_;
  std::deque<Send> told_;
  std::optional<ParamPeer> peer_;
  std::optional<ParamPeer::Lease> computing_;
  Instant done_at_{};
  microseconds took_{};
  bool ended_ = false;
};

// Does what the log says, in a plain loop; checks what any log must keep to.
class Repeated {
 public:
  explicit Repeated(const Job& run)
      : run_(run), state_(run.state), version_(run.version), samples_(kSamples - run.free.size()) {
    for (const int worker : run.stretch().workers) clocks_[worker] = 0;
  }

  void obey(const Order& order) {
    if (order.kind == Order::Kind::kLend) lend(order);
    if (order.kind == Order::Kind::kApply && !run_.has_tasks()) apply(order.pushes);
    if (order.kind == Order::Kind::kApply && run_.has_tasks()) close();
    if (order.kind == Order::Kind::kAdd) add(order.pushes.at(0));
    if (order.kind == Order::Kind::kDrop) {
      ASSERT_TRUE(run_.consistency.name == "backup" || run_.has_tasks());
      leases_[order.worker].pop_front();
    }
  }

  const State& state() const { return state_; }
  uint64_t version() const { return version_; }
  const std::vector<SampleRange>& used() const { return used_; }
  bool has_open_round() const { return !added_.empty(); }

 private:
  struct Lease {
    std::vector<float> weights;
    SampleRange samples;
    uint64_t version;
  };

  void lend(const Order& order) {
    std::deque<Lease>& lent = leases_[order.worker];
    ASSERT_LT(lent.size(), run_.leases()) << "it has not given the last ones";
    // It computes this one after those that it has.
    const int begun = clocks_.at(order.worker) + static_cast<int>(lent.size());
    lent.push_back({state_.weights, order.samples, version_});
    if (run_.consistency.name != "ssp") return;
    int slowest = clocks_.begin()->second;
    for (const auto& [worker, clock] : clocks_) slowest = std::min(slowest, clock);
    ASSERT_LE(begun - slowest, run_.consistency.staleness);
  }
  void apply(const std::vector<Push>& pushes) {
    const UpdatePlan plan = plan_update(kRules, pushes, version_, samples_);
    double total = 0;
    for (const UpdatePlan::Part& part : plan.parts) total += part.weight;
    std::vector<float> mean(state_.weights.size(), 0.0f);
    for (size_t p = 0; p < pushes.size(); ++p) {
      const Push& push = pushes[p];
      ASSERT_FALSE(leases_[push.worker].empty()) << "applied twice, or never lent";
      const Lease lease = leases_[push.worker].front();
      leases_[push.worker].pop_front();
      ASSERT_EQ(lease.samples, push.samples);
      ASSERT_EQ(lease.version, push.version);
      if (run_.consistency.name == "backup") {
        ASSERT_EQ(push.version, version_) << "stale";
      }
      const std::vector<float> gradient = gradient_of(lease.weights, lease.samples);
      const auto share = static_cast<float>(plan.parts[p].weight / total);
      for (size_t i = 0; i < mean.size(); ++i)
        mean[i] = pushes.size() == 1 ? gradient[i] : mean[i] + share * gradient[i];
      samples_ += push.samples.size();
      used_.push_back(push.samples);
      ++clocks_.at(push.worker);
    }
    update(plan, mean);
  }
  // What was handed in of a task.
  void add(const Push& push) {
    const Lease lease = leases_[push.worker].front();
    leases_[push.worker].pop_front();
    ASSERT_EQ(lease.samples, push.samples);
    ASSERT_EQ(lease.version, version_) << "of another round";
    const std::vector<float> change = gradient_of(lease.weights, lease.samples);
    sum_.resize(change.size());
    const auto weight = static_cast<float>(push.samples.size());
    for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * change[i];
    added_.push_back(push);
    used_.push_back(push.samples);
  }
  void close() {
    ASSERT_FALSE(added_.empty());
    double weight = 0;
    for (const Push& push : added_) weight += static_cast<double>(push.samples.size());
    for (float& value : sum_) value *= static_cast<float>(1 / weight);
    update(plan_update(run_.rules(), added_, version_, samples_), sum_);
    samples_ += static_cast<uint64_t>(weight);
    added_.clear();
    sum_.clear();
  }
  void update(const UpdatePlan& plan, const std::vector<float>& mean) {
    for (const Block& block : space().blocks()) {
      float* state[] = {state_.momentum.data() + block.offset};
      const float* const gradient = mean.data() + block.offset;
      ASSERT_TRUE(update_block(plan.settings, space().slices()[block.slice].weight_decay,
                               {&gradient, 1}, block.size, state_.weights.data() + block.offset,
                               state));
    }
    ++version_;
  }

  const Job& run_;
  State state_;
  uint64_t version_, samples_;
  std::map<int, std::deque<Lease>> leases_;
  std::map<int, int> clocks_;  // gradients that were applied
  std::vector<SampleRange> used_;
  std::vector<Push> added_;  // in the round
  std::vector<float> sum_;   // likewise
};

// How it went, over all seeds.
struct Tally {
  uint64_t stretches = 0, cut = 0, updates = 0, drops = 0, gave_up = 0;
} tally;

SimOptions options_of(const Job& run, Dice& dice) {
  SimOptions options{.world = static_cast<int>(run.members.size()) + 1,
                     .seed = dice.below(1 << 30)};
  // None is doubled or overtaken: the fabrics under the service see to that, and so does the line
  // to the launcher.
  options.link = {.delay_most = microseconds(5 + dice.below(500))};
  options.eager_bytes = dice.below(4) == 0 ? 0 : 64 << 10;
  if (dice.below(2) == 0 || run.members.size() == 1) return options;
  const uint64_t deaths = 1 + (dice.below(5) == 0 ? 1 : 0);
  for (uint64_t i = 0; i < deaths; ++i) {
    SimFault fault{.rank = static_cast<int>(dice.below(run.members.size()))};
    if (dice.below(4) == 0) {
      fault.freeze = true;
      fault.lasts = microseconds(dice.below(5000));
    }
    if (dice.below(2) == 0) {
      fault.operation = 1 + dice.below(120);
    } else {
      fault.at = Instant(microseconds(dice.below(8000)));
    }
    options.faults.push_back(fault);
  }
  return options;
}

void expect_kept(const Ownership& owners, int name, const State& found, const State& wanted) {
  const std::optional<size_t> slice = owners.slice_of(name);
  if (!slice) return;
  for (const Span& kept : owners.kept_by(*slice)) {
    for (size_t i = kept.begin; i < kept.end; ++i) {
      ASSERT_EQ(found.weights[i], wanted.weights[i]) << "worker " << name << ", float " << i;
      ASSERT_EQ(found.momentum[i], wanted.momentum[i]) << "worker " << name << ", float " << i;
    }
  }
}

// One stretch; then the run is where the others would begin the next. False: a slice is lost.
bool go_on(Job& run, Dice& dice) {
  SimWorld sim(options_of(run, dice));
  const Ownership owners = run.owners();
  const size_t count = run.members.size();
  const size_t leases = run.leases();
  std::vector<std::vector<float>> memory(count * leases * 2,
                                         std::vector<float>(space().total_floats()));
  std::vector<std::vector<Seat>> seats(count);
  for (size_t i = 0; i < memory.size(); i += 2)
    seats[i / 2 / leases].push_back({memory[i], memory[i + 1]});
  const Desks desks = run.desks ? Desks(seats) : Desks();
  std::vector<std::unique_ptr<Member>> members(count);
  std::optional<Launcher> launcher;
  const uint64_t drain_at = dice.below(3) == 0 ? dice.below(10000) : 1'000'000'000;
  const uint64_t seed = dice.below(1 << 30);
  const SimWorld::Outcome outcome = sim.run([&](int rank) {
    const auto r = static_cast<size_t>(rank);
    if (r == count) {
      if (!launcher) launcher.emplace(sim.fabric(rank), run);
      return launcher->advance(sim.now() >= Instant(microseconds(drain_at)));
    }
    if (!members[r])
      members[r] =
          std::make_unique<Member>(sim.fabric(rank), run, owners, desks, seats[r], seed + r);
    return members[r]->advance();
  });
  EXPECT_TRUE(outcome.all_done()) << "somebody hangs, of " << count << " with " << run.servers
                                  << " servers, " << run.consistency.name
                                  << (run.desks ? " with desks" : "") << ", " << run.ahead
                                  << " ahead"
                                  << "; done, dead: " << testing::PrintToString(outcome.done)
                                  << ", " << testing::PrintToString(outcome.dead);
  ++tally.stretches;
  tally.cut += launcher->was_cut() ? 1 : 0;

  Repeated repeated(run);
  for (const Order& order : launcher->log()) {
    repeated.obey(order);
    tally.drops += order.kind == Order::Kind::kDrop ? 1 : 0;
  }
  EXPECT_FALSE(repeated.has_open_round()) << "what was added is in no update";
  std::vector<int> left;
  for (size_t rank = 0; rank < count; ++rank) {
    if (outcome.dead[rank]) continue;
    left.push_back(run.members[rank]);
    EXPECT_EQ(members[rank]->log(), launcher->log()) << "worker " << run.members[rank];
    expect_kept(owners, run.members[rank], members[rank]->settle(), repeated.state());
  }
  for (const SampleRange& samples : repeated.used()) run.free.remove(samples);  // throws if gone
  tally.updates += repeated.version() - run.version;
  run.state = repeated.state();
  run.version = repeated.version();
  run.members = left;
  for (size_t slice = 0; slice < owners.slices(); ++slice) {
    if (owners.floats(slice).size() > 0 && !owners.holder(slice, left)) return false;
  }
  return true;
}

Job a_run(Dice& dice) {
  Job run;
  for (size_t i = 0; i < run.state.weights.size(); ++i)
    run.state.weights[i] = static_cast<float>(i % 11) - 5.0f;
  const auto count = static_cast<int>(1 + dice.below(5));
  for (int name = 0; name < count; ++name) run.members.push_back(name);
  run.servers = static_cast<int>(dice.below(3));
  constexpr const char* kNames[] = {"async", "ssp", "backup", "tasks"};
  run.consistency = {.name = kNames[dice.below(4)],
                     .staleness = static_cast<int>(dice.below(4)),
                     .backup = static_cast<int>(dice.below(3)),
                     .tasks = dice.below(8)};
  run.desks = dice.below(2) == 0;
  run.ahead = dice.below(2) == 0 ? 0 : static_cast<uint32_t>(1 + dice.below(2));
  return run;
}

TEST(ParamSim, WhatCountedIsThereOnceWhoeverIsLost) {
  tally = {};
  constexpr uint64_t kSeeds = 10'000;
  for_each_seed(kSeeds, [](uint64_t seed) {
    Dice dice(seed);
    Job run = a_run(dice);
    for (int stretches = 0; !run.free.empty() && !testing::Test::HasFailure(); ++stretches) {
      ASSERT_LT(stretches, 100) << "it does not get on";
      if (go_on(run, dice)) continue;
      ++tally.gave_up;  // owner and copy lost together: told by who would make the next stretch
      return;
    }
  });
  std::printf(
      "%llu stretches, %llu of them cut off by a loss, %llu updates, %llu drops; "
      "%llu runs lost a slice with its copy\n",
      static_cast<unsigned long long>(tally.stretches), static_cast<unsigned long long>(tally.cut),
      static_cast<unsigned long long>(tally.updates), static_cast<unsigned long long>(tally.drops),
      static_cast<unsigned long long>(tally.gave_up));
  if (std::getenv("STARLING_SIM_SEED") != nullptr) return;
  EXPECT_GT(tally.cut, kSeeds / 4);
  EXPECT_GT(tally.drops, kSeeds / 10);
  EXPECT_LT(tally.gave_up, kSeeds / 10);
}

}  // namespace
}  // namespace starling
