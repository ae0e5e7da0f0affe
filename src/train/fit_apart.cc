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
#include "train/numbers.h"
#include "train/optimizer_transfer.h"
#include "train/stretch_replay.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kMostDamping = 10;
constexpr uint64_t kMostPeriod = 1'000'000;
// With `outer = "nesterov"`: as DiLoCo has them.
constexpr double kOuterRate = 0.7, kOuterMomentum = 0.9;
// After so many the speed of each worker is known.
constexpr uint64_t kMeasuredBatches = 8;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

// Says where the time until then has gone: for the gradient and the weights that were on their way,
// or for others, who had to come first.
std::optional<ParamPeer::Lease> next_lease(ParamService& service, Strategy::Seconds& spent,
                                           bool brings_weights) {
  const auto begin = Clock::now();
  std::optional<ParamPeer::Lease> lease = service.next();
  const auto end = Clock::now();
  const bool moved = lease && brings_weights;
  const double waiting =
      seconds_between(moved ? std::max(begin, lease->pushed) : begin, moved ? lease->lent : end);
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
    if (order.kind == Order::Kind::kDrop) continue;
    for (const Push& push : order.pushes) {
      if (push.worker == worker && push.samples == lease.samples && push.version == lease.version)
        return true;
    }
  }
  return false;
}

// The ledger is to tell what was computed, not what was to be.
void check_computed(const Push& push, std::span<const uint64_t> samples) {
  SampleHash lent;
  lent.add(samples);
  if (push.computed == lent.digest()) return;
  throw run_error(
      fmt::format("worker {} was lent the samples at places {} … {} of the epoch, and has computed "
                  "from others",
                  push.worker, push.samples.begin, push.samples.end - 1),
      "this is a fault in Starling: please report it");
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
  const PartitionKind partition = partition_from_name(strategy.partition);
  if (has_tasks(strategy) && partition != PartitionKind::kDynamic)
    throw input_error(fmt::format("strategy.partition = \"{}\" with {}", strategy.partition, way),
                      "leave it away: who is ready takes the next task");
  if (has_tasks(strategy) && strategy.tasks > strategy.period * options_.batch) {
    throw input_error(
        fmt::format("strategy.tasks = {} is out of range", strategy.tasks),
        fmt::format("a round has {} samples (period × batch): use 0 … {} tasks; 0 is one for each "
                    "worker",
                    strategy.period * options_.batch, strategy.period * options_.batch));
  }
  if (!(strategy.beta > 0 && strategy.beta <= 1)) {
    throw input_error(fmt::format("strategy.beta = {} is out of range", strategy.beta),
                      "use more than 0, and 1 at most");
  }
  const uint64_t steps = (end_epoch_ - first_epoch_) * steps_per_epoch();
  if (has_centre(strategy) && 2 * strategy.period > steps) {
    throw input_error(
        fmt::format("strategy.period = {} is too long for a run of {} steps", strategy.period,
                    steps),
        fmt::format("the centre learns nothing of a worker's last steps: use {} at most",
                    std::max<uint64_t>(1, steps / 2)));
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
  if (strategy.match != "random" && strategy.match != "ring")
    throw input_error(fmt::format("strategy.match = \"{}\" is not known", strategy.match),
                      "use random or ring");
  if (has_meetings(strategy) && impl_.world().computing() < impl_.world().workers())
    throw input_error(fmt::format("{} has no servers", way), "leave --servers away");
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
  Ownership owners;
  if (!own_weights_meet())
    owners = owners_of(world, state.space, impl_.options.strategy.replicas, slice_shares_.shares);
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
                  .ahead = static_cast<uint32_t>(leases_apart(strategy) - 1),
                  .speeds = {}};
  if (makes_own_steps()) {
    // One round, if there are samples for no more: so that all get some of them.
    stretch.batch = std::clamp<uint64_t>(stretch.batch * strategy.period, 1,
                                         std::max<uint64_t>(1, stretch.free.size()));
    // In rounds all hand in one change for each, or of each task; else nobody waits.
    stretch.consistency.name = has_tasks(strategy)      ? "tasks"
                               : has_meetings(strategy) ? "gossip"
                               : makes_rounds()         ? "backup"
                                                        : "async";
    stretch.consistency.tasks = strategy.tasks;
    stretch.consistency.ring = strategy.match == "ring";
    stretch.consistency.seed = impl_.options.seed;
  }
  if (makes_local_steps(strategy)) stretch.consistency.backup = 0;
  if (is_synchronous_first()) stretch.consistency.name = "backup";
  for (const int worker : stretch.workers) stretch.speeds.push_back(speeds_.of(worker));
  const bool is_known = std::all_of(stretch.speeds.begin(), stretch.speeds.end(),
                                    [](double speed) { return speed > 0; });
  // Shares by speeds that are not known are equal: only a few samples are divided so.
  if (stretch.partition == PartitionKind::kWeighted && !is_known)
    keep_to(kMeasuredBatches * std::max(stretch.batch, stretch.workers.size()), stretch.free);
  // Optimizers are averaged between stretches.
  if (makes_own_steps() && agrees_in_rounds(strategy) && strategy.local_state == "averaged")
    keep_to(stretch.batch, stretch.free);
  return stretch;
}

bool FitLoop::is_synchronous_first() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  return makes_local_steps(strategy) && cursor_.epoch < strategy.post_local_after;
}

bool FitLoop::makes_own_steps() const {
  return makes_local_steps(impl_.options.strategy) && !is_synchronous_first();
}

bool FitLoop::makes_rounds() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  if (is_synchronous_first()) return true;
  return makes_own_steps() ? agrees_in_rounds(strategy) : strategy.consistency == "backup";
}

bool FitLoop::own_weights_meet() const {
  return has_meetings(impl_.options.strategy) && makes_own_steps();
}

uint64_t FitLoop::service_version() const {
  return makes_own_steps() ? impl_.summary.steps : impl_.state.step;
}

UpdateRules FitLoop::update_rules() const {
  const StrategyOptions& strategy = impl_.options.strategy;
  if (makes_own_steps()) {
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

uint64_t FitLoop::step_after(uint64_t samples) const {
  const uint64_t epochs = cursor_.epoch - first_epoch_;
  return epochs * steps_per_epoch() + (samples - epochs * train_.size()) / options_.batch + 1;
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
  if (own_weights_meet() && !own_weights_.now.empty())
    std::copy(own_weights_.now.begin(), own_weights_.now.end(), state.weights.begin());
  ParamService service(
      world,
      {.names = {},
       .computes = {},
       .space = &state.space,
       .owners = strategy_->ownership(),
       .state =
           [&](size_t kind, size_t offset) {
             return !makes_own_steps() || state.outer.empty() ? state.optimizer.at(kind, offset)
                                                              : state.outer.data() + offset;
           },
       .rules = update_rules(),
       .version = service_version(),
       .samples = samples_before(),
       .seats = weights_of(state.desk()->seats()),
       .meets = own_weights_meet(),
       .desks = &apart_->desks()},
      [&](uint64_t updates) { return is_save_due_apart(impl_.summary.steps + updates); });
  if (world.is_chief()) world.begin_stretch(make_stretch());
  work_ = make_work(service);
  std::deque<ParamPeer::Lease> last;
  if (world.computes(world.rank())) last = work_apart(service);
  apart_->sit(0);
  const auto waiting = Clock::now();
  const Status ended = service.finish();
  seconds_before_.waiting += seconds_between(waiting, Clock::now());
  // Whatever becomes of the others, updates that were ordered count.
  const auto open =
      ended ? last.end() : std::find_if(last.begin(), last.end(), [&](const auto& lease) {
        return !was_applied(service.log(), world.name(), lease);
      });
  world.set_work_began(open == last.end() ? Clock::now() : open->lent);
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
  if (own_weights_meet()) own_weights_.now.assign(state.weights.begin(), state.weights.end());
  seconds_before_.communication += service.meeting_seconds().exposed;
  seconds_before_.hidden += service.meeting_seconds().hidden + service.hidden_seconds();
  return service.log();
}

std::unique_ptr<LeaseWork> FitLoop::make_work(ParamService& service) {
  const StrategyOptions& strategy = impl_.options.strategy;
  if (makes_own_steps()) {
    auto steps = std::make_unique<LocalSteps>(
        executor_, impl_.state, impl_.options.optimizer, impl_.options.non_finite,
        LocalSteps::Options{
            .batch = options_.batch,
            .parts = has_tasks(strategy) && strategy.tasks > 0 ? strategy.tasks : computing_.size(),
            .total_steps = schedule_epochs_ * steps_per_epoch(),
            .resets = agrees_in_rounds(strategy) && strategy.local_state == "reset",
            .step = impl_.state.step,
            .trained = samples_before(),
            .compute =
                [this](FunctionRef<void()> work) {
                  const World::Computing computing(impl_.world(), executor_.lanes().count());
                  work();
                },
            .goes_on =
                [this, &service] {
                  impl_.world().note_progress();
                  service.meet();
                  // Nobody can take it any more when somebody was lost.
                  const std::atomic<bool>* const lost = impl_.world().interrupt();
                  return !service.is_outdone() && !(lost != nullptr && *lost);
                }});
    if (has_meetings(strategy))
      return std::make_unique<GossipSteps>(std::move(steps), impl_.state.weights.span(),
                                           own_weights_);
    if (!has_centre(strategy))
      return std::make_unique<LocalChange>(std::move(steps), impl_.state.space.total_floats());
    // Beyond half of the way they would change places.
    return std::make_unique<ElasticSteps>(
        std::move(steps), own_weights_,
        std::min(0.5, strategy.beta / static_cast<double>(computing_.size())));
  }
  auto step = std::make_unique<LeaseStep>(executor_, impl_.state, impl_.options.optimizer,
                                          impl_.options.non_finite);
  if (strategy.overlap) {
    step->tell_early({service.buckets(), [&](std::span<const float> gradient, size_t bucket) {
                        service.push_bucket(gradient, bucket);
                      }});
  }
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
  Sums sums{.metrics = std::vector<double>(cursor_.sums.metrics.size())};  // of this stretch
  const auto stretch_begin = Clock::now();
  while (const std::optional<ParamPeer::Lease> lease =
             next_lease(service, seconds_before_, !own_weights_meet())) {
    if (lease->dropped) work_->take_back(1);
    if (last.size() == leases_apart(impl_.options.strategy)) last.pop_front();
    last.push_back(*lease);
    apart_->sit(lease->seat);
    ++gradients_;
    world.set_step_served(gradients_);
    world.tell_step(step_after(lease->trained), (end_epoch_ - first_epoch_) * steps_per_epoch());
    world.pass(FaultPoint::kStep);
    // Not in the time that it takes: it is compiled once for each size.
    work_->prepare(lease->samples.size());
    const auto begin = Clock::now();
    const LeaseWork::Result result = [&] {
      std::optional<World::Computing> computing;  // if not each step by itself
      if (!makes_own_steps()) computing.emplace(world, executor_.lanes().count());
      return work_->run({.samples = samples_at(lease->samples),
                         .epoch = cursor_.epoch,
                         .trained = lease->trained,
                         .version = lease->version,
                         .seat = impl_.state.desk()->seats()[lease->seat]},
                        reader_);
    }();
    const double seconds = seconds_between(begin, Clock::now());
    if (!result.outdone) {
      shard_seconds_ += seconds * static_cast<double>(full_step_.samples) /
                        static_cast<double>(lease->samples.size()) /
                        impl_.shards_of(options_.batch);
      ++full_steps_;
    }
    world.pass(FaultPoint::kGradient);
    const Push push{.worker = world.name(),
                    .samples = lease->samples,
                    .version = lease->version,
                    .finite = result.finite,
                    .seconds = result.outdone ? 0 : seconds,
                    .sums = result.told_sums(),
                    .met = service.met(),
                    .computed = result.computed.digest()};
    service.push(result.change, push);
    world.note_progress();
    if (result.finite && !result.outdone) sums += *result.sums;
    tell_progress({.samples = lease->trained + lease->samples.size() -
                              std::min(lease->trained, samples_before()),
                   .seconds = seconds_between(stretch_begin, Clock::now()),
                   .sums = &sums});
    if (!asked && options_.should_stop && options_.should_stop()) {
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
    if (one.kind == Order::Kind::kMeet) ++summary.meetings;
    for (const Push& push : one.pushes) speeds_.add(push.worker, push.samples.size(), push.seconds);
    if (one.kind == Order::Kind::kDrop) continue;
    const uint64_t trained = summary.samples;
    for (const Push& push : one.pushes) {
      if (!own_weights_meet()) {  // those miss nothing: they are the worker's own
        const uint64_t missed = service_version() - push.version;
        if (summary.staleness.size() <= missed) summary.staleness.resize(missed + 1);
        ++summary.staleness[missed];
      }
      const std::vector<uint64_t> samples = samples_at(push.samples);
      check_computed(push, samples);
      cursor_.free.remove(push.samples);
      ledger_.mark(samples);
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
    if (!one.pushes.empty()) impl_.state.step += optimizer_steps(trained);
    if (one.kind == Order::Kind::kApply) ++summary.steps;
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
  if (!makes_own_steps()) return 1;
  return impl_.summary.samples / options_.batch - trained / options_.batch;
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
