#include "train/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "observe/history_json.h"
#include "starling/error.h"
#include "train/optimizer_transfer.h"
#include "train/recoveries_json.h"

namespace starling {
namespace {

// In a step: more than anybody wants, and their samples can be counted.
constexpr uint64_t kMostBatches = uint64_t{1} << 20;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The next step, when `samples` of the epoch are left.
StepSize step_of(uint64_t samples, const FitOptions& options) {
  const uint64_t batch = std::min(options.batch, samples);
  return {.samples = static_cast<int64_t>(std::min(samples, batch * options.accumulate)),
          .batch = static_cast<int64_t>(batch)};
}

// How many samples the steps of an epoch have.
std::vector<StepSize> step_sizes(uint64_t samples, const FitOptions& options) {
  if (options.batch == 0) throw input_error("batch = 0", "give a step 1 sample or more");
  if (options.accumulate == 0 || options.accumulate > kMostBatches) {
    throw input_error(fmt::format("accumulate = {} is out of range", options.accumulate),
                      fmt::format("use 1 … {}", kMostBatches));
  }
  std::vector<StepSize> sizes{step_of(samples, options)};
  const auto full = static_cast<uint64_t>(sizes[0].samples);
  if (full > 0 && samples % full != 0) sizes.push_back(step_of(samples % full, options));
  return sizes;
}

Sums no_sums(size_t metrics) {
  return {.samples = 0, .loss = 0, .metrics = std::vector<double>(metrics, 0.0)};
}

}  // namespace

History Trainer::fit(const data::Dataset& train, const FitOptions& options) {
  return FitLoop(*this, *impl_, train, options).run();
}

FitLoop::FitLoop(Trainer& trainer, Trainer::Impl& impl, const data::Dataset& train,
                 const FitOptions& options)
    : trainer_(trainer),
      impl_(impl),
      train_((impl.check_data(train, "training"), train)),
      options_(options),
      executor_(impl.executor_for(options.batch)),
      full_step_(step_of(train.size(), options)),
      balancer_(impl.options.strategy.balance, executor_.options().shards),
      loader_(train, {.batch = options.batch,
                      .seed = impl.options.seed,
                      .shuffle = options.shuffle,
                      .needed = [this](uint64_t rows) { return rows_of_shards(rows); }}),
      reader_(reader_of(train_)),
      first_epoch_(impl.epochs_done),
      end_epoch_(impl.epochs_done + options.epochs),
      schedule_epochs_(options.epochs) {
  if (options.epochs == 0) throw input_error("epochs = 0", "train for 1 epoch or more");
  if (options.validation) impl.check_data(options.validation, "validation");
  data_text_ = data_text();
  cursor_ = {.epoch = first_epoch_,
             .free = SampleRanges({0, train_.size()}),
             .sums = no_sums(impl.options.metrics.size())};
  if (trains_apart()) check_apart();
  if (rolls_back()) check_roll_back();
  if (options.replay) open_replay();
  if (!options.record.empty()) {
    if (!trains_apart())
      throw input_error("a record is of workers that train apart, and these don't",
                        "leave it away: other strategies give the same bits anyway");
    if (makes_local_steps(impl.options.strategy))
      throw input_error("steps that workers make by themselves are not recorded yet",
                        "leave the record away");
    record_.emplace(options.record);
  }
  if (!options.checkpoints.folder.empty() &&
      (impl.world().is_chief() || options.checkpoints.resume)) {
    open_store();
  }
  impl.world().faults().handle(Fault::Action::kCorrupt, [this](const Fault&) {
    if (!store_ || !impl_.world().is_chief()) return true;
    store_->wait();
    return damage_newest_checkpoint(store_->folder());
  });
  if (impl.state.given) {
    for (const CallbackPtr& callback : options_.callbacks) callback->reset();
    impl_.summary = {};
    restore(*impl.state.given, "what the other workers gave");
    impl_.world().set_recoveries(recoveries_from_json(impl.state.given->manifest.at("recoveries")));
    if (options_.on_resume) options_.on_resume(history_);
  }
  follow_world();
}

data::RowRange FitLoop::rows_of_shards(uint64_t rows) const {
  const ShardRange own = own_shards_.load();
  const auto first_row = [&](int shard) {
    return static_cast<uint64_t>(
        shard_begin(static_cast<int64_t>(rows), shard, executor_.options().shards));
  };
  return {first_row(own.begin), first_row(own.end)};
}

FitLoop::~FitLoop() { impl_.world().faults().handle(Fault::Action::kCorrupt, nullptr); }

void FitLoop::follow_world() {
  World& world = impl_.world();
  std::optional<OptimizerState> part;  // of the optimizer state, for this worker
  world.agree("making the strategy", [&] {
    world.pass(FaultPoint::kStrategy);
    if (trains_apart()) world.forget_orders();
    part.reset();
    if (world.is_donor()) world.give_state(state_for_newcomers());
    const bool is_new_view = strategy_view_ != world.view();
    if (is_new_view) world.require_same("job", job_text());
    if (strategy_) {
      seconds_before_ += strategy_->seconds();
      bytes_before_ += strategy_->bytes_moved();
    }
    step_.reset();
    apart_ = nullptr;
    strategy_.reset();
    strategy_ = trains_apart()
                    ? make_apart()
                    : make_strategy(impl_.options.strategy, world, executor_, impl_.state.space,
                                    step_sizes(train_.size(), options_),
                                    balancer_.begin(world.view(), computing(world)));
    step_.emplace(executor_, *strategy_, impl_.state, impl_.options.optimizer,
                  impl_.options.non_finite);
    strategy_view_ = world.view();
    strategy_members_.clear();
    for (int rank = 0; rank < world.workers(); ++rank)
      strategy_members_.push_back(world.name_of(rank));
    computing_ = world.computing_names();
    if (impl_.options.strategy.balance == Balance::kSpeed)
      world.require_same("placement of shards", placement_text());
    const TrainState& state = impl_.state;
    const Ownership* const owners = strategy_->ownership();
    if (owners != nullptr && state.splits_optimizer() && *owners != state.owners()) {
      part = split_anew(world, {state.owners(), state.optimizer}, *owners);
      world.pass(FaultPoint::kSliced);
    }
    if (is_new_view && world.view() > 1) world.require_same("state", state_text());
  });
  if (part) impl_.state.split(*strategy_->ownership(), std::move(*part));
  if (strategy_view_ == world.view()) world.forget_former();
  own_shards_ = strategy_->shards();
  if (!trains_apart()) executor_.prepare(full_step_, strategy_->shards());
}

bool FitLoop::recover(const LostWorker& lost) {
  const World::Next next = impl_.world().reform(
      lost, [&](std::span<const int> ranks) { return step_ && step_->can_complete(ranks); });
  const bool complete = next == World::Next::kComplete;
  if (complete) step_->complete_here();
  return complete;
}

// Of the first workers: newcomers begin where the others are.
void FitLoop::begin() {
  impl_.summary = {};
  for (const CallbackPtr& callback : options_.callbacks) callback->reset();
  if (options_.checkpoints.resume) resume();
  begin_ledger();
  if (record_ && impl_.world().is_chief()) record_->go_on_after(impl_.state.step);
  impl_.world().agree("state", [&] { impl_.world().require_same("state", state_text()); });
  if (rolls_back() && impl_.summary.resumed_from.empty()) save_start();
}

History FitLoop::run() {
  if (!std::exchange(impl_.state.given, nullptr)) begin();
  last_save_ = Clock::now();
  const int lanes = executor_.lanes().count() * impl_.world().computing();
  if (const int shards = executor_.options().shards; lanes > shards && !trains_apart()) {
    note(fmt::format(
        "{} of {} lanes have no work: a batch has {} shards (raise `shards` to use them)",
        lanes - shards, lanes, shards));
  }
  for (const CallbackPtr& callback : options_.callbacks) callback->train_begin(trainer_);
  // A replay goes as far as its record.
  while (options_.replay ? next_replayed_ < replayed_.size()
                         : !cursor_.ended && cursor_.epoch < end_epoch_) {
    if (!run_epoch()) break;
    finish_epoch();
  }
  if (options_.replay) impl_.summary.stopped = options_.replay->stopped;
  save_at_end();
  if (!impl_.summary.stopped) {
    for (const CallbackPtr& callback : options_.callbacks) callback->train_end(trainer_);
  }
  finish_summary();
  impl_.epochs_done = cursor_.epoch;
  return history_;
}

void FitLoop::save_at_end() { save_for_all("the last checkpoint"); }

bool FitLoop::save_for_all(const char* what) {
  World& world = impl_.world();
  bool written = true;
  world.agree(what, [&] {
    if (!options_.checkpoints.folder.empty()) gather_optimizer_state();
    if (!options_.checkpoints.folder.empty() && world.is_chief()) {
      save_now();
      store_->wait();
      const auto failure = store_->failure();
      written = !failure;
      if (failure) note(fmt::format("{} was not saved: {}", what, *failure));
    }
    // Where memory is shared, a callback's last change of the weights must wait for that copy of
    // them.
    world.barrier(what);
  });
  gathered_.reset();
  return written;
}

void FitLoop::copy_slices() {
  TrainState& state = impl_.state;
  if (!state.splits_optimizer() || state.owners().replicas() > 0) return;
  World& world = impl_.world();
  Ownership copied;
  OptimizerState part;
  world.agree("copying slices", [&] {
    copied = Ownership(state.space, {world.members().begin(), world.members().end()}, 1);
    part = split_anew(world, {state.owners(), state.optimizer}, copied);
  });
  state.split(copied, std::move(part));
}

void FitLoop::change_workers() {
  World& world = impl_.world();
  if (wishes_.wait) {
    const bool saved = save_for_all("the checkpoint before waiting for workers") &&
                       !options_.checkpoints.folder.empty();
    note(fmt::format("{} of at least {} workers are left: the run {} for others to join",
                     world.computing(), impl_.options.strategy.min_workers,
                     saved ? "is saved, and waits" : "is not saved, but waits"));
  }
  copy_slices();               // one that leaves takes its own with it
  if (store_) store_->wait();  // it must not write any more, either
  // If the world was made anew within the step or since, those who were to come in have done so, or
  // are asked for again.
  if (strategy_view_ == world.view()) world.change();
}

uint64_t FitLoop::rebalances() const {
  return rebalances_before_ + balancer_.changes() + slice_shares_.changes;
}

void FitLoop::finish_summary() {
  impl_.world().agree("summary", [&] { gather_summary(); });
}

void FitLoop::gather_summary() {
  struct Own {
    WorkerTimes times;
    uint64_t untold;  // of what it sent: since the last epoch's record
    uint64_t optimizer_bytes;
    LeaseWork::Disagreement disagreement;
  };
  World& world = impl_.world();
  Strategy::Seconds exchange = strategy_->seconds();
  exchange += seconds_before_;
  const double steps = impl_.summary.training_seconds - input_seconds_;
  const uint64_t bytes_sent = bytes_before_ + strategy_->bytes_moved();
  const Own own{{.worker = world.name(),
                 .input = input_seconds_,
                 .compute = steps - exchange.communication - exchange.waiting,
                 .communication = exchange.communication,
                 .hidden = exchange.hidden,
                 .waiting = exchange.waiting,
                 .shards = trains_apart() ? 0 : strategy_->shards().size(),
                 .shard = full_steps_ > 0 ? shard_seconds_ / static_cast<double>(full_steps_) : 0,
                 .bytes_sent = bytes_sent},
                bytes_sent - bytes_told_,
                // What is shared counts once.
                world.shares_memory() && !world.is_chief() ? 0 : impl_.state.optimizer.bytes(),
                disagreement_};
  const std::vector<Own> all = world.gather("summary", std::span(&own, 1));
  impl_.summary.strategy = strategy_->name();
  impl_.summary.rebalances = rebalances();
  impl_.summary.bytes_moved = 0;
  for (const EpochRecord& epoch : history_.epochs()) impl_.summary.bytes_moved += epoch.bytes_sent;
  impl_.summary.times.clear();
  impl_.summary.optimizer_bytes.clear();
  LeaseWork::Disagreement disagreement;
  for (const Own& worker : all) {
    disagreement.sum += worker.disagreement.sum;
    disagreement.count += worker.disagreement.count;
    impl_.summary.bytes_moved += worker.untold;
    impl_.summary.optimizer_bytes.push_back(worker.optimizer_bytes);
    impl_.summary.times.push_back(worker.times);
  }
  if (disagreement.count > 0)
    impl_.summary.disagreement = disagreement.sum / static_cast<double>(disagreement.count);
}

void FitLoop::begin_ledger() {
  const bool is_new = cursor_.step_in_epoch == 0 && cursor_.free.size() == train_.size();
  if (is_new) ledger_.begin(cursor_.epoch, train_.size());
}

uint64_t FitLoop::steps_per_epoch() const {
  return (loader_.steps_per_epoch() + options_.accumulate - 1) / options_.accumulate;
}

StepSize FitLoop::step_size() const {
  return step_of(train_.size() - cursor_.step_in_epoch * options_.accumulate * options_.batch,
                 options_);
}

void FitLoop::start_loader() {
  loader_.start_epoch(cursor_.epoch, std::min(cursor_.step_in_epoch * options_.accumulate,
                                              loader_.steps_per_epoch()));
}

bool FitLoop::run_epoch() {
  if (trains_apart()) return run_epoch_apart();
  if (options_.replay) return replay_epoch();
  const uint64_t steps = steps_per_epoch();
  start_loader();
  // A callback may have changed the weights, of shared ones perhaps another worker's.
  impl_.weights_changed();
  impl_.any_executor();
  epoch_begin_ = Clock::now();
  epoch_seconds_ = 0;
  epoch_samples_ = 0;
  while (cursor_.step_in_epoch < steps) {
    run_step();
    tell_progress({});
    if (impl_.summary.stopped) return false;
  }
  return true;
}

void FitLoop::add_batches() {
  const StepSize size = step_size();
  double compute_seconds = 0;
  for (int64_t index = 0; index < size.batches(); ++index) {
    const auto input_begin = Clock::now();
    const data::Batch& batch = loader_.next();
    input_seconds_ += seconds_since(input_begin);
    const auto compute_begin = Clock::now();
    {
      const World::Computing computing(impl_.world(), executor_.lanes().count());
      step_->add({.samples = batch.ids,
                  .features = batch.features,
                  .labels = batch.labels,
                  .reader = &reader_,
                  .epoch = cursor_.epoch,
                  .step = size,
                  .index = index});
    }
    compute_seconds += seconds_since(compute_begin);
  }
  step_->took(compute_seconds);
}

void FitLoop::run_step() {
  const auto begin = Clock::now();
  const StepSize size = step_size();
  const uint64_t total_steps = (end_epoch_ - first_epoch_) * steps_per_epoch();
  const uint64_t step = (cursor_.epoch - first_epoch_) * steps_per_epoch() + cursor_.step_in_epoch;
  TrainStep::Result result{};
  for (bool complete = false, again = false, over = false; !over; again = true) {
    try {
      // Workers that trained apart before may have made other steps, and more of them.
      impl_.world().set_step(step + 1, total_steps);
      impl_.world().pass(FaultPoint::kStep);
      if (!complete) {
        const bool stale = strategy_view_ != impl_.world().view();
        while (strategy_view_ != impl_.world().view()) follow_world();
        if (stale || again) start_loader();
        add_batches();
      }
      const bool change = impl_.world().wants_change();
      const bool are_few =
          static_cast<uint64_t>(impl_.world().computing()) < impl_.options.strategy.min_workers;
      const Wishes wishes{.stop = options_.should_stop && options_.should_stop(),
                          .change = change,
                          .wait = change && are_few,
                          .save = is_save_due(impl_.summary.steps + 1)};
      result = step_->finish(rate(impl_.options.optimizer, step, total_steps), wishes);
      over = true;
    } catch (const LostWorker& lost) {
      complete = recover(lost);
    }
  }
  wishes_ = result.wishes;
  impl_.summary.stopped = wishes_.stop;
  check_weights();
  ledger_.mark(step_->samples());  // the step has checked that its shards had just these
  if (result.applied) {
    cursor_.sums += *result.sums;
  } else if (!rolls_back()) {
    ++impl_.state.skipped;
    ++impl_.summary.skipped_steps;
    note(fmt::format("epoch {} step {}: skipped, a number was not finite", cursor_.epoch + 1,
                     cursor_.step_in_epoch + 1));
  }
  ++cursor_.step_in_epoch;
  ++impl_.summary.steps;
  impl_.summary.samples += step_->samples().size();
  impl_.summary.trained_samples += step_->samples().size();
  epoch_samples_ += step_->samples().size();
  if (!result.applied && rolls_back()) roll_back();
  const double seconds = seconds_since(begin);
  epoch_seconds_ += seconds;
  impl_.summary.training_seconds += seconds;
  const bool rebalance = balance(size);
  if (!impl_.summary.stopped) save_if_due();  // before newcomers, who don't know of it
  // All know of the wish, or have found the same placement, so all do this next, whatever happens
  // to the world meanwhile; it is where newcomers begin.
  if ((wishes_.change || rebalance) && !impl_.summary.stopped) {
    if (wishes_.change) change_workers();
    follow_world();
    start_loader();
  }
}

void FitLoop::check_weights() {
  const uint64_t every = impl_.options.strategy.check_every, step = impl_.summary.steps + 1;
  if (every == 0 || step % every != 0 || impl_.world().workers() == 1) return;
  std::optional<World::Difference> found;
  impl_.world().agree("checking the weights", [&] {
    found = impl_.world().compare("checking the weights", trainer_.weights_sha256());
  });
  if (!found) return;
  throw run_error(fmt::format("after step {} the weights of worker {} are not those of the chief; "
                              "they were compared every {} steps",
                              step, found->worker, every),
                  "check_every = 1 finds the very step; a callback that changes weights on one "
                  "worker only, or bad memory, does this");
}

void FitLoop::finish_epoch() {
  const data::LedgerEntry entry = ledger_.finish();
  impl_.summary.samples_unique += entry.unique;
  impl_.summary.samples_duplicated += entry.duplicated;
  impl_.summary.samples_missing += entry.missing;
  tell_ledger(entry.to_json());

  const double n = static_cast<double>(std::max<int64_t>(1, cursor_.sums.samples));
  EpochRecord record{.epoch = cursor_.epoch + 1, .step = impl_.state.step + impl_.state.skipped};
  record.values.emplace_back("train_loss", cursor_.sums.loss / n);
  const std::vector<std::string> names = impl_.metric_names();
  for (size_t m = 0; m < names.size(); ++m)
    record.values.emplace_back("train_" + names[m], cursor_.sums.metrics[m] / n);
  if (options_.validation) {
    for (const auto& [name, value] : impl_.evaluate(options_.validation).values)
      record.values.emplace_back("val_" + name, value);
  }
  const uint64_t steps = steps_per_epoch();
  record.values.emplace_back(
      "learning_rate", rate(impl_.options.optimizer, (cursor_.epoch - first_epoch_ + 1) * steps - 1,
                            (end_epoch_ - first_epoch_) * steps));
  record.values.emplace_back("samples_per_s",
                             static_cast<double>(epoch_samples_) / std::max(epoch_seconds_, 1e-9));
  record.samples = impl_.summary.samples;
  measure_epoch(record);
  history_.append(record);

  ++cursor_.epoch;
  cursor_.step_in_epoch = 0;
  cursor_.seconds = epoch_seconds_ = 0;
  cursor_.roll_backs = 0;
  cursor_.free = SampleRanges({0, train_.size()});
  cursor_.sums = no_sums(names.size());
  begin_ledger();
  for (const CallbackPtr& callback : options_.callbacks) {
    if (!callback->epoch_end(trainer_, record)) cursor_.ended = true;
    if (const std::string text = callback->note(); !text.empty()) note(text);
  }
  if (options_.on_epoch) options_.on_epoch(record);
}

// All get the same figures, so that callbacks decide alike by them.
void FitLoop::measure_epoch(EpochRecord& record) {
  struct Own {
    double train_seconds;
    uint64_t bytes;
  };
  const uint64_t bytes = bytes_before_ + strategy_->bytes_moved();
  const Own own{cursor_.seconds + epoch_seconds_, bytes - bytes_told_};
  std::vector<Own> all;
  impl_.world().agree("the epoch's figures", [&] {
    all = impl_.world().gather("the epoch's figures", std::span(&own, 1));
  });
  bytes_told_ = bytes;
  for (const Own& worker : all) {
    record.train_seconds = std::max(record.train_seconds, worker.train_seconds);
    record.bytes_sent += worker.bytes;
  }
  record.seconds = seconds_since(epoch_begin_);
}

void FitLoop::tell_progress(const Ahead& ahead) const {
  if (!options_.on_step) return;
  Sums& sums = progress_sums_;
  sums = cursor_.sums;
  if (ahead.sums != nullptr) sums += *ahead.sums;
  const auto n = static_cast<double>(std::max<int64_t>(1, sums.samples));
  progress_.epoch = cursor_.epoch - first_epoch_ + 1;
  progress_.epochs = end_epoch_ - first_epoch_;
  progress_.steps_per_epoch = steps_per_epoch();
  progress_.step_in_epoch =
      std::min(cursor_.step_in_epoch + ahead.samples / options_.batch, progress_.steps_per_epoch);
  progress_.samples = impl_.summary.trained_samples + ahead.samples;
  progress_.seconds = impl_.summary.training_seconds + ahead.seconds;
  progress_.loss = sums.loss / n;
  progress_.metrics.resize(sums.metrics.size());
  for (size_t m = 0; m < progress_.metrics.size(); ++m) {
    if (progress_.metrics[m].first.empty())
      progress_.metrics[m].first = impl_.options.metrics[m]->kind();
    progress_.metrics[m].second = sums.metrics[m] / n;
  }
  options_.on_step(progress_);
}

void FitLoop::note(const std::string& text) const {
  if (options_.on_note) options_.on_note(text);
}

}  // namespace starling
