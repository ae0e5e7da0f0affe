// How FitLoop trains where workers go on by themselves, through the parameter service. An epoch is
// made of stretches (param/conductor.h). Between them all have the same state, as between two steps
// of the other strategies: there workers join and leave, and checkpoints are written.
#include <fmt/format.h>

#include <algorithm>

#include "base/lost_worker.h"
#include "starling/error.h"
#include "strategy/apart.h"
#include "strategy/param_service.h"
#include "train/fit.h"
#include "train/lease_step.h"
#include "train/local_work.h"
#include "train/optimizer_transfer.h"
#include "train/stretch_replay.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostDamping = 10;
constexpr uint64_t kMostPeriod = 1'000'000;
// Of local_sgd with `outer = "nesterov"`: as DiLoCo has them.
constexpr double kOuterRate = 0.7, kOuterMomentum = 0.9;
// Of optimizers' state, at a time.
constexpr size_t kAveragedFloats = size_t{1} << 18;
// After so many the speed of each worker is known.
constexpr uint64_t kMeasuredBatches = 8;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

// Says where the time until then has gone: for the gradient and the weights that were on their way,
// or for others, who had to come first.
std::optional<ParamPeer::Lease> next_lease(ParamService& service, Strategy::Seconds& spent) {
  const auto begin = Clock::now();
  std::optional<ParamPeer::Lease> lease = service.next();
  const auto end = Clock::now();
  const double waiting =
      seconds_between(lease ? std::max(begin, lease->pushed) : begin, lease ? lease->lent : end);
  spent.waiting += waiting;
  spent.communication += seconds_between(begin, end) - waiting;
  return lease;
}

std::vector<std::span<float>> weights_of(const std::vector<Seat>& seats) {
  std::vector<std::span<float>> weights;
  for (const Seat& seat : seats) weights.push_back(seat.weights);
  return weights;
}

// The first so many of the samples.
void keep_to(uint64_t most, SampleRanges& free) {
  SampleRanges few;
  while (const std::optional<SampleRange> some = free.take(most)) {
    few.add(*some);
    most -= some->size();
  }
  free = few;
}

// Whether the worker's gradient of what it was lent is among the updates.
bool was_applied(const std::vector<Order>& log, int worker, const ParamPeer::Lease& lease) {
  for (const Order& order : log) {
    if (order.kind != Order::Kind::kApply) continue;
    for (const Push& push : order.pushes) {
      if (push.worker == worker && push.samples == lease.samples && push.version == lease.version)
        return true;
    }
  }
  return false;
}

}  // namespace

bool FitLoop::trains_apart() const { return starling::trains_apart(impl_.options.strategy); }

void FitLoop::check_apart() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  const std::string way = makes_local_steps(strategy)
                              ? fmt::format("strategy \"{}\"", strategy.name)
                              : fmt::format("strategy.consistency = \"{}\"", strategy.consistency);
  if (!impl_.world().survives() || impl_.world().shares_memory()) {
    throw input_error(fmt::format("{} needs a launcher that coordinates", way),
                      "use `starling train`, with strategy.survive = true");
  }
  if (options_.accumulate > 1) {
    throw input_error(fmt::format("training.accumulate = {} with {}", options_.accumulate, way),
                      "use accumulate = 1, and a larger batch");
  }
  static_cast<void>(partition_from_name(strategy.partition));
  if (!(strategy.beta > 0 && strategy.beta <= 1)) {
    throw input_error(fmt::format("strategy.beta = {} is out of range", strategy.beta),
                      "use more than 0, and 1 at most");
  }
  if (strategy.period < 1 || strategy.period > kMostPeriod) {
    throw input_error(fmt::format("strategy.period = {} is out of range", strategy.period),
                      fmt::format("use 1 … {} steps", kMostPeriod));
  }
  if (strategy.outer != "average" && strategy.outer != "nesterov")
    throw input_error(fmt::format("strategy.outer = \"{}\" is not known", strategy.outer),
                      "use average or nesterov");
  if (strategy.local_state != "kept" && strategy.local_state != "averaged" &&
      strategy.local_state != "reset")
    throw input_error(
        fmt::format("strategy.local_state = \"{}\" is not known", strategy.local_state),
        "use kept, averaged or reset");
  const double damping = impl_.options.strategy.damping;
  const int ahead = impl_.options.strategy.ahead;
  if (ahead < 0 || ahead > static_cast<int>(kAheadMost)) {
    throw input_error(fmt::format("strategy.ahead = {} is out of range", ahead),
                      fmt::format("use 0 … {}; 0 is none", kAheadMost));
  }
  if (!(damping >= 0 && damping <= kMostDamping)) {
    throw input_error(fmt::format("strategy.damping = {} is out of range", damping),
                      fmt::format("use 0 … {}; 0 is none", kMostDamping));
  }
}

std::unique_ptr<Strategy> FitLoop::make_apart() {
  TrainState& state = impl_.state;
  // In another view slices are of equal size again: newcomers know of no others.
  World& world = impl_.world();
  if (slice_shares_.view != world.view()) slice_shares_.shares.clear();
  slice_shares_.view = world.view();
  Ownership owners =
      owners_of(world, state.space, impl_.options.strategy.replicas, slice_shares_.shares);
  auto apart = std::make_unique<Apart>(impl_.options.strategy.name, world, executor_,
                                       std::move(owners), *state.desk());
  apart_ = apart.get();
  return apart;
}

bool FitLoop::run_epoch_apart() {
  epoch_begin_ = Clock::now();
  epoch_seconds_ = 0;
  epoch_samples_ = 0;
  while (!cursor_.free.empty()) {
    run_stretch();
    if (impl_.summary.stopped) return false;
  }
  return true;
}

Stretch FitLoop::make_stretch() const {
  const World& world = impl_.world();
  const StrategyOptions& strategy = impl_.options.strategy;
  Stretch stretch{.workers = world.computing_names(),
                  .free = cursor_.free,
                  .batch = options_.batch,
                  .version = service_version(),
                  .consistency = {strategy.consistency, strategy.staleness, strategy.backup},
                  .partition = partition_from_name(strategy.partition),
                  .ahead = static_cast<uint32_t>(strategy.ahead),
                  .speeds = {}};
  if (makes_local_steps(strategy)) {
    // One round, if there are samples for no more: so that all get some of them.
    stretch.batch = std::clamp<uint64_t>(stretch.batch * strategy.period, 1,
                                         std::max<uint64_t>(1, stretch.free.size()));
    stretch.ahead = 0;
    // With a centre nobody waits; else all hand in one change for each round.
    stretch.consistency.name = makes_rounds() ? "backup" : "async";
    stretch.consistency.backup = 0;
  }
  for (const int worker : stretch.workers) stretch.speeds.push_back(speeds_.of(worker));
  const bool is_known = std::all_of(stretch.speeds.begin(), stretch.speeds.end(),
                                    [](double speed) { return speed > 0; });
  // Shares by speeds that are not known are equal: only a few samples are divided so.
  if (stretch.partition == PartitionKind::kWeighted && !is_known)
    keep_to(kMeasuredBatches * std::max(stretch.batch, stretch.workers.size()), stretch.free);
  // Optimizers are averaged between stretches.
  if (makes_local_steps(strategy) && !has_centre(strategy) && strategy.local_state == "averaged")
    keep_to(stretch.batch, stretch.free);
  return stretch;
}

bool FitLoop::makes_rounds() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  return makes_local_steps(strategy) ? !has_centre(strategy) : strategy.consistency == "backup";
}

uint64_t FitLoop::service_version() const {
  return makes_local_steps(impl_.options.strategy) ? impl_.summary.steps : impl_.state.step;
}

UpdateRules FitLoop::update_rules() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  if (makes_local_steps(strategy)) {
    return {.optimizer = !has_outer_velocity(strategy)
                             ? sgd(1)
                             : nesterov(kOuterRate, {.momentum = kOuterMomentum}),
            .batch = options_.batch,
            .usual = static_cast<double>(options_.batch),
            .total_steps = 1,
            .whole = true};
  }
  // Gradients of a round are of one version, and so nobody's are stale.
  const bool rounds = makes_rounds();
  const auto workers = computing_.size();
  const auto batch = static_cast<double>(options_.batch);
  return {.optimizer = impl_.options.optimizer,
          .batch = options_.batch,
          .usual = rounds ? batch : batch / static_cast<double>(workers),
          .total_steps = schedule_epochs_ * steps_per_epoch(),
          .apart = strategy.adjust_momentum && !rounds ? workers : 1,
          .damping = strategy.damping};
}

uint64_t FitLoop::samples_before() const {
  return (cursor_.epoch - first_epoch_) * train_.size() + (train_.size() - cursor_.free.size());
}

// Two units, and what happens between them: everybody makes the strategy, and shares what was
// trained, whatever becomes of the stretch.
void FitLoop::run_stretch() {
  World& world = impl_.world();
  const auto begin = Clock::now();
  follow_world();
  RecordedStretch stretch = begin_record();
  // If the view has changed since, no gradient can have come to all who keep slices here. Others
  // may have gone on for a moment.
  stretch.log = strategy_view_ == world.view() ? train_apart() : world.take_orders();
  account_for(stretch.log);
  share_trained();
  note_disagreement();
  tell_record(stretch);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  epoch_seconds_ += seconds;
  impl_.summary.training_seconds += seconds;
  impl_.summary.stopped = wishes_.stop;
  if (impl_.summary.stopped) return;
  save_if_due();
  const bool saved = wishes_.save || (wishes_.change && impl_.state.splits_optimizer());
  if (saved) updates_saved_ = impl_.summary.steps;
  if (!wishes_.change) return;
  change_workers();
  follow_world();
}

std::vector<Order> FitLoop::train_apart() {
  World& world = impl_.world();
  TrainState& state = impl_.state;
  ParamService service(world, {.names = {},
                               .computes = {},
                               .space = &state.space,
                               .owners = strategy_->ownership(),
                               .state =
                                   [&](size_t kind, size_t offset) {
                                     return state.outer.empty() ? state.optimizer.at(kind, offset)
                                                                : state.outer.data() + offset;
                                   },
                               .rules = update_rules(),
                               .version = service_version(),
                               .samples = samples_before(),
                               .seats = weights_of(state.desk()->seats()),
                               .desks = &apart_->desks()});
  if (world.is_chief()) world.begin_stretch(make_stretch());
  work_ = make_work(service);
  std::deque<ParamPeer::Lease> last;
  if (world.computes(world.rank())) last = work_apart(service);
  apart_->sit(0);
  const auto waiting = Clock::now();
  const Status ended = service.finish();
  seconds_before_.waiting += seconds_between(waiting, Clock::now());
  if (!ended) {
    const std::string what =
        fmt::format("{} update {}, worker {}: {}", strategy_->name(), service.version() + 1,
                    world.name(), ended.failure().message);
    world.reform(
        LostWorker(what, "--resume goes on from the last checkpoint", ended.failure().peer),
        [](std::span<const int>) { return false; });
  }
  service.settle();
  apart_->add_bytes_moved(service.bytes_moved());
  served_ = service.load();
  work_->take_back(static_cast<size_t>(
      std::count_if(last.begin(), last.end(), [&](const ParamPeer::Lease& lease) {
        return !was_applied(service.log(), world.name(), lease);
      })));
  return service.log();
}

std::unique_ptr<LeaseWork> FitLoop::make_work(ParamService& service) {
  const StrategyOptions& strategy = impl_.options.strategy;
  if (makes_local_steps(strategy)) {
    auto steps = std::make_unique<LocalSteps>(
        executor_, impl_.state, impl_.options.optimizer, impl_.options.non_finite,
        LocalSteps::Options{.batch = options_.batch,
                            .workers = computing_.size(),
                            .total_steps = schedule_epochs_ * steps_per_epoch(),
                            .resets = !has_centre(strategy) && strategy.local_state == "reset",
                            .step = impl_.state.step,
                            .trained = samples_before(),
                            .on_step = [this] { impl_.world().note_progress(); }});
    if (!has_centre(strategy))
      return std::make_unique<LocalChange>(std::move(steps), impl_.state.space.total_floats());
    return std::make_unique<ElasticSteps>(std::move(steps), own_weights_,
                                          strategy.beta / static_cast<double>(computing_.size()));
  }
  auto step = std::make_unique<LeaseStep>(executor_, impl_.state, impl_.options.optimizer,
                                          impl_.options.non_finite);
  step->tell_early({service.buckets(), [&](std::span<const float> gradient, size_t bucket) {
                      service.push_bucket(gradient, bucket);
                    }});
  return step;
}

std::vector<uint64_t> FitLoop::samples_at(SampleRange places) const {
  std::optional<Permutation> order;
  if (options_.shuffle) order.emplace(train_.size(), impl_.options.seed, cursor_.epoch);
  std::vector<uint64_t> ids;
  for (uint64_t at = places.begin; at < places.end; ++at) ids.push_back(order ? (*order)(at) : at);
  return ids;
}

// Returns the last leases, as many as it may have had at the end.
std::deque<ParamPeer::Lease> FitLoop::work_apart(ParamService& service) {
  World& world = impl_.world();
  std::deque<ParamPeer::Lease> last;
  bool asked = false;
  uint64_t own = 0;  // gradients in this stretch
  const StrategyOptions& strategy = impl_.options.strategy;
  const uint64_t period = makes_local_steps(strategy) ? strategy.period : 1;
  const uint64_t total = (end_epoch_ - first_epoch_) * steps_per_epoch() / period;
  // In rounds all hand in something for each update; else the others have made about as many.
  const auto each = makes_rounds() ? uint64_t{1} : static_cast<uint64_t>(world.computing());
  while (const std::optional<ParamPeer::Lease> lease = next_lease(service, seconds_before_)) {
    if (lease->dropped) work_->take_back(1);
    if (last.size() == leases_apart(strategy)) last.pop_front();
    last.push_back(*lease);
    apart_->sit(lease->seat);
    ++gradients_;
    world.set_step(gradients_, std::max(total, gradients_));
    world.pass(FaultPoint::kStep);
    // Not in the time that it takes: it is compiled once for each size.
    work_->prepare(lease->samples.size());
    const auto begin = Clock::now();
    const LeaseWork::Result result = [&] {
      const World::Computing computing(world, executor_.lanes().count());
      return work_->run({.samples = samples_at(lease->samples),
                         .epoch = cursor_.epoch,
                         .trained = lease->trained,
                         .seat = impl_.state.desk()->seats()[lease->seat]},
                        reader_);
    }();
    const double seconds = seconds_between(begin, Clock::now());
    shard_seconds_ += seconds * static_cast<double>(full_step_.samples) /
                      static_cast<double>(lease->samples.size()) / impl_.shards_of(options_.batch);
    ++full_steps_;
    world.pass(FaultPoint::kGradient);
    const Push push{.worker = world.name(),
                    .samples = lease->samples,
                    .version = lease->version,
                    .finite = result.finite,
                    .seconds = seconds,
                    .sums = result.told_sums()};
    service.push(result.change, push);
    world.note_progress();
    const uint64_t updates = impl_.summary.steps + ++own * each;
    const bool stop = options_.should_stop && options_.should_stop();
    if (!asked && (stop || is_save_due_apart(updates))) {
      world.drain();
      asked = true;
    }
  }
  return last;
}

bool FitLoop::is_save_due_apart(uint64_t updates) const {
  const uint64_t every = options_.checkpoints.every_steps;
  // Not at a number of steps, but when there are so many new ones.
  return is_time_to_save(every > 0 && updates >= updates_saved_ + every);
}

void FitLoop::account_for(std::span<const Order> log) {
  FitSummary& summary = impl_.summary;
  for (const Order& one : log) {
    if (one.kind == Order::Kind::kDrop) ++summary.dropped_gradients;
    for (const Push& push : one.pushes) speeds_.add(push.worker, push.samples.size(), push.seconds);
    if (one.kind != Order::Kind::kApply) continue;
    const uint64_t trained = summary.samples;
    for (const Push& push : one.pushes) {
      const uint64_t missed = service_version() - push.version;
      if (summary.staleness.size() <= missed) summary.staleness.resize(missed + 1);
      ++summary.staleness[missed];
      cursor_.free.remove(push.samples);
      ledger_.mark(samples_at(push.samples));
      summary.samples += push.samples.size();
      summary.trained_samples += push.samples.size();
      epoch_samples_ += push.samples.size();
      if (!push.finite) {
        ++summary.skipped_steps;
        continue;
      }
      const size_t metrics = cursor_.sums.metrics.size();  // LeaseWork::Result::told_sums
      cursor_.sums.loss += push.sums.at(0);
      for (size_t m = 0; m < metrics; ++m) cursor_.sums.metrics[m] += push.sums.at(1 + m);
      cursor_.sums.samples += static_cast<int64_t>(push.sums.at(1 + metrics));
      summary.skipped_steps += static_cast<uint64_t>(push.sums.at(2 + metrics));
    }
    impl_.state.step += optimizer_steps(trained);
    ++summary.steps;
  }
  cursor_.step_in_epoch = (train_.size() - cursor_.free.size()) / options_.batch;
}

void FitLoop::note_disagreement() {
  if (!work_) return;
  work_->agreed(impl_.state.weights.span());
  disagreement_.sum += work_->disagreement().sum;
  disagreement_.count += work_->disagreement().count;
  work_.reset();
}

uint64_t FitLoop::optimizer_steps(uint64_t trained) const {
  if (!makes_local_steps(impl_.options.strategy)) return 1;
  return impl_.summary.samples / options_.batch - trained / options_.batch;
}

// All get the weights as the servers have them, and learn what any of them wants.
void FitLoop::share_trained() {
  World& world = impl_.world();
  const bool change = world.wants_change();
  const Wishes own{.stop = options_.should_stop && options_.should_stop(),
                   .change = change,
                   .wait = change && static_cast<uint64_t>(world.computing()) <
                                         impl_.options.strategy.min_workers,
                   .save = is_save_due_apart(impl_.summary.steps)};
  const std::vector<float> statistics(impl_.state.statistics.span().begin(),
                                      impl_.state.statistics.span().end());
  const std::vector<std::vector<float>> optimizers = local_optimizers();
  std::vector<ServedLoad> loads;  // by rank
  world.agree("sharing what was trained", [&] {
    spread_slices(world, *strategy_->ownership(), impl_.state.weights.span());
    if (!impl_.state.outer.empty())
      spread_slices(world, *strategy_->ownership(), impl_.state.outer.span());
    wishes_ = {};
    for (const Wishes& one : world.gather("wishes", std::span(&own, 1))) wishes_.add(one);
    average_statistics(statistics);
    average_optimizers(optimizers);
    loads = world.gather("loads", std::span<const ServedLoad>(&served_, 1));
  });
  balance_slices(loads);
  impl_.weights_changed();
  impl_.any_executor();
}

void FitLoop::balance_slices(const std::vector<ServedLoad>& by_rank) {
  const World& world = impl_.world();
  if (slice_shares_.view != world.view() || by_rank.size() != strategy_members_.size()) return;
  const Ownership& owners = *strategy_->ownership();
  std::vector<ServedLoad> loads;
  for (const int name : owners.members())
    loads.push_back(by_rank[static_cast<size_t>(world.rank_of(name))]);
  std::vector<double> shares = shares_by_load(owners, loads);
  if (shares.empty()) return;
  slice_shares_.shares = std::move(shares);
  ++slice_shares_.changes;
}

// Of those that have computed: each has seen the moments of its own gradients.
void FitLoop::average_statistics(const std::vector<float>& own) {
  averaged_ = impl_.world().computing_names();
  if (!own.empty()) average(own, impl_.state.statistics.span());
}

// The mean of what those who compute have.
void FitLoop::average(std::span<const float> own, std::span<float> mean) {
  World& world = impl_.world();
  const std::vector<float> all = world.gather("what is averaged", own);
  std::vector<std::span<const float>> parts;
  for (const int name : world.computing_names())
    parts.push_back(
        std::span(all).subspan(static_cast<size_t>(world.rank_of(name)) * own.size(), own.size()));
  mean_of(parts, mean);
}

// By kind; none where servers have it.
std::vector<std::vector<float>> FitLoop::local_optimizers() const {
  std::vector<std::vector<float>> own;
  if (!makes_local_steps(impl_.options.strategy)) return own;
  const OptimizerState& state = impl_.state.optimizer;
  for (size_t kind = 0; kind < state.kinds(); ++kind) {
    const float* const values = state.at(kind, 0);
    own.emplace_back(values, values + impl_.state.space.total_floats());
  }
  return own;
}

// So that all are the same between stretches.
void FitLoop::average_optimizers(const std::vector<std::vector<float>>& own) {
  for (size_t kind = 0; kind < own.size(); ++kind) {
    for (size_t begin = 0; begin < own[kind].size(); begin += kAveragedFloats) {
      const size_t count = std::min(kAveragedFloats, own[kind].size() - begin);
      average(std::span(own[kind]).subspan(begin, count),
              {impl_.state.optimizer.at(kind, begin), count});
    }
  }
}

RecordedStretch FitLoop::begin_record() const {
  const UpdateRules rules = update_rules();
  return {.epoch = cursor_.epoch,
          .version = service_version(),
          .epochs = schedule_epochs_,
          .shards = executor_.options().shards,
          .numbers = numbers_text(),
          .optimizer = rules.optimizer,
          .usual = rules.usual,
          .apart = rules.apart,
          .damping = rules.damping,
          .workers = computing_,
          .log = {},
          .averaged = {}};
}

// A unit of its own: whoever is the chief then has all of it.
void FitLoop::tell_record(const RecordedStretch& stretch) {
  World& world = impl_.world();
  if (!record_ || stretch.end_version() == stretch.version) return;
  world.agree("the record", [&] {
    if (!world.is_chief()) return;
    RecordedStretch whole = stretch;
    whole.averaged = averaged_;
    record_->append(whole);
    world.pass(FaultPoint::kRecord);
  });
}

}  // namespace starling
