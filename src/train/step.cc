#include "train/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "base/lost_worker.h"
#include "starling/error.h"
#include "strategy/lane_blocks.h"
#include "tensor/tree_sum.h"
#include "train/block_gradients.h"

namespace starling {
namespace {

constexpr const char* kNonFiniteHint =
    "lower the learning rate, clip gradients (clip_norm = 1.0), look at the data, or set "
    "non_finite = \"skip\"; --resume goes on from the last checkpoint";

}  // namespace

TrainStep::TrainStep(Executor& executor, Strategy& strategy, TrainState& state,
                     const Optimizer& optimizer, NonFinite policy)
    : executor_(executor),
      strategy_(strategy),
      state_(state),
      optimizer_(optimizer),
      policy_(policy),
      block_sums_(state.space.blocks().size()),
      shard_seconds_(static_cast<size_t>(executor.options().shards)) {}

template <typename Work>
void TrainStep::for_blocks(BlockRange range, const GradientParts& parts, LateGradients* late,
                           Work work) {
  const auto some = [&](int lane, size_t first, size_t last) {
    BlockGradients gradients(state_.space, parts, late, lane, last);
    for (size_t b = first; b < last; ++b) work(lane, b, state_.space.blocks()[b], gradients.of(b));
  };
  const auto of_lane = [&](int lane) {
    return lane_blocks(state_.space, range, lane, executor_.lanes().count());
  };
  if (of_lane(0).last == range.last) {
    executor_.run_alone([&] { some(0, range.first, range.last); });
    return;
  }
  executor_.lanes().run([&](int lane) {
    const BlockRange blocks = of_lane(lane);
    some(lane, blocks.first, blocks.last);
  });
}

template <typename Work>
void TrainStep::for_own_blocks(bool summed, Work work) {
  GradientParts parts = strategy_.parts();
  if (summed) parts = {parts.plan, parts.at.first(1), parts.origin};
  for_blocks(strategy_.blocks(), parts, summed ? nullptr : executor_.late(), work);
}

void TrainStep::add(const BatchRows& batch) {
  const auto rows = static_cast<int64_t>(batch.samples.size());
  if (batch.index == 0) ids_.clear();
  stage_ = Stage::kAdding;
  completing_ = false;
  ids_.insert(ids_.end(), batch.samples.begin(), batch.samples.end());
  size_ = batch.step.samples > 0 ? batch.step : StepSize::of_batch(rows);
  batch_ = batch;
  const bool last = batch.index + 1 == size_.batches();
  executor_.gradient(batch, strategy_.shards(), last ? strategy_.watch(size_) : nullptr);
  const ShardRange own = strategy_.shards();
  if (own.size() > 0 && executor_.lanes().raised()) executor_.board().raise(own.begin);
}

bool TrainStep::looks_first() const {
  const bool surely_finite = !executor_.board().raised() && executor_.raises_flags();
  return optimizer_.clip_norm || policy_ != NonFinite::kStop || !surely_finite;
}

TrainStep::Result TrainStep::finish(double rate, const Wishes& wishes) {
  if (stage_ == Stage::kAdding) {
    wishes_ = wishes;
    strategy_.pass(FaultPoint::kGradient);
    require(strategy_.exchange(size_, wishes_));
    stage_ = Stage::kExchanged;
    check_samples();
    // After the step the board may be the next one's already.
    for (size_t shard = 0; shard < shard_seconds_.size(); ++shard)
      shard_seconds_[shard] = executor_.board().seconds(static_cast<int>(shard));
  }
  const Sums& sums = executor_.board().total();
  if (!std::isfinite(sums.loss)) {
    if (policy_ == NonFinite::kStop) stop_at_loss();
    // Nobody knows more than the loss by it, but all meet once more: who has not come so far when a
    // worker is lost expects that, and has the step made again.
    sum_gradients();
    return skipped(sums);
  }
  UpdateSettings settings(optimizer_, rate, state_.step);
  const bool look_first = looks_first();
  if (look_first) {
    const double norm = sum_gradients();
    if (!std::isfinite(norm)) {
      if (policy_ == NonFinite::kStop) stop_at_gradient("");
      return skipped(sums);
    }
    if (optimizer_.clip_norm) settings.gradient_scale = clip_scale(norm, *optimizer_.clip_norm);
  }
  if (strategy_.ownership() != nullptr) spread_weights(settings, look_first);
  require(strategy_.close());
  strategy_.begin_update();
  strategy_.pass(FaultPoint::kUpdate);
  bool finite = update(settings, look_first);
  strategy_.pass(FaultPoint::kUpdated);
  require(strategy_.commit(finite));
  strategy_.pass(FaultPoint::kCommitted);
  if (!finite) {
    sum_gradients();
    stop_at_gradient("; the weights in memory hold a part of this step");
  }
  executor_.refresh_updated();
  ++state_.step;
  return done(sums, true);
}

TrainStep::Result TrainStep::skipped(const Sums& sums) {
  bool finite = true;
  require(strategy_.close());
  strategy_.begin_update();
  require(strategy_.commit(finite));
  return done(sums, false);
}

TrainStep::Result TrainStep::done(const Sums& sums, bool applied) {
  stage_ = Stage::kAdding;
  completing_ = false;
  return {&sums, applied, wishes_};
}

bool TrainStep::can_complete(std::span<const int> lost) const {
  return strategy_.has_parts_of(lost, stage_ == Stage::kAdding && looks_first());
}

void TrainStep::complete_here() {
  completing_ = true;
  strategy_.complete_here();
}

std::span<const uint64_t> TrainStep::batch_samples(int64_t index) const {
  return std::span(ids_).subspan(static_cast<size_t>(index * size_.batch),
                                 static_cast<size_t>(size_.batch_size(index)));
}

void TrainStep::check_samples() {
  const int shards = executor_.options().shards;
  for (int shard = 0; shard < shards; ++shard) {
    SampleHash expected;
    for (int64_t index = 0; index < size_.batches(); ++index) {
      const int64_t n = size_.batch_size(index), begin = shard_begin(n, shard, shards),
                    end = shard_begin(n, shard + 1, shards);
      expected.add(batch_samples(index).subspan(static_cast<size_t>(begin),
                                                static_cast<size_t>(end - begin)));
    }
    if (executor_.board().sample_hash(shard) == expected) continue;
    throw run_error(
        fmt::format("step {}: shard {} was not computed from its samples", state_.step + 1, shard),
        "this is a fault in Starling: please report it");
  }
}

void TrainStep::require(const Status& status) const {
  if (status) return;
  throw LostWorker(fmt::format("{} step {}, worker {}: {}", strategy_.name(), state_.step + 1,
                               strategy_.rank(), status.failure().message),
                   "--resume goes on from the last checkpoint, with the same bits",
                   status.failure().peer);
}

double TrainStep::sum_gradients() {
  if (stage_ == Stage::kExchanged) {
    strategy_.look();
    const GradientParts parts = strategy_.parts();
    for_own_blocks(false, [&](int, size_t b, const Block& block, const BlockGradient& gradient) {
      float* const sum = parts.at[0] + (block.offset - parts.origin);
      if (gradient.parts.size() > 1 || gradient.parts[0] != sum)
        tree_sum(gradient.parts, block.size, sum);
      block_sums_[b] = block_square_sum(sum, block.size);
    });
    stage_ = Stage::kSummed;
  }
  if (stage_ == Stage::kSummed) {
    require(strategy_.share(block_sums_));
    stage_ = Stage::kLooked;
  }
  return global_norm(state_.space, block_sums_);
}

template <typename Write>
void TrainStep::guarded(int lane, size_t block, Write write) {
  UpdateJournal* const journal = state_.journal();
  if (journal == nullptr) return write(nullptr);
  const uint64_t number = state_.step + 1;
  if (journal->is_done(block, number)) return;
  const auto slot = static_cast<size_t>(strategy_.rank() * executor_.lanes().count() + lane);
  const size_t first = completing_ ? journal->progress(block, number) : 0;
  const UndoLog undo = journal->begin(slot, block, number, first);
  strategy_.pass(FaultPoint::kBlock);
  write(&undo);
  strategy_.pass(FaultPoint::kBlockWritten);
  journal->end(block, number);
}

void TrainStep::spread_weights(const UpdateSettings& settings, bool summed) {
  if (stage_ == Stage::kSpread) return;
  std::atomic<bool> all_finite{true};
  float* const next = strategy_.next_weights();
  const auto compute = [&](int, size_t, const Block& block, const BlockGradient& gradient) {
    alignas(kAlignment) std::array<std::array<float, kBlockElements>, kMaxStates> copies;
    std::array<float*, kMaxStates> states{};
    for (size_t kind = 0; kind < state_.optimizer.kinds(); ++kind) {
      states[kind] = copies[kind].data();
      std::copy_n(state_.optimizer.at(kind, block.offset), block.size, states[kind]);
    }
    std::copy_n(state_.weights.data() + block.offset, block.size, next + block.offset);
    if (!update_block(settings, state_.space.slices()[block.slice].weight_decay, gradient.parts,
                      block.size, next + block.offset, states.data())) {
      all_finite = false;
    }
  };
  for_own_blocks(summed, compute);
  strategy_.pass(FaultPoint::kSpread);
  bool finite = all_finite;
  require(strategy_.spread(finite));
  if (!finite) {
    sum_gradients();
    stop_at_gradient("");
  }
  stage_ = Stage::kSpread;
}

void TrainStep::take_over_weights() {
  const BlockRange own = strategy_.blocks(), copied = strategy_.copied_blocks();
  const auto is_in = [](size_t b, BlockRange range) { return b >= range.first && b < range.last; };
  float* next = strategy_.next_weights();
  for_blocks({0, state_.space.blocks().size()}, {nullptr, {&next, 1}}, nullptr,
             [&](int, size_t b, const Block& block, const BlockGradient& weights) {
               if (is_in(b, own) || is_in(b, copied)) return;
               std::copy_n(weights.parts[0], block.size, state_.weights.data() + block.offset);
             });
}

bool TrainStep::update(const UpdateSettings& settings, bool summed) {
  const bool moves = state_.moments.size() > 0 && strategy_.moves_statistics();
  if (UpdateJournal* const journal = state_.journal(); journal != nullptr && completing_) {
    const size_t statistics = journal->statistics_block();
    journal->restore(strategy_.blocks(), state_.step + 1);
    if (moves) journal->restore({statistics, statistics + 1}, state_.step + 1);
  }
  std::atomic<bool> finite{true};
  const std::span<float* const> weight_copies = strategy_.weight_copies();
  const auto update_one = [&](int lane, size_t b, const Block& block,
                              const BlockGradient& gradient) {
    const Slice& slice = state_.space.slices()[block.slice];
    guarded(lane, b, [&](const UndoLog* undo) {
      std::array<float*, kMaxStates> states{};
      for (size_t kind = 0; kind < state_.optimizer.kinds(); ++kind)
        states[kind] = state_.optimizer.at(kind, block.offset);
      if (!update_block(settings, slice.weight_decay, gradient.parts, block.size,
                        state_.weights.data() + block.offset, states.data(),
                        {.undo = undo,
                         .copies = weight_copies,
                         .offset = block.offset,
                         .claimed = gradient.claimed})) {
        finite = false;
      }
    });
  };
  for_own_blocks(summed, update_one);
  if (strategy_.ownership() != nullptr) {
    for_blocks(strategy_.copied_blocks(), strategy_.copied_parts(), nullptr, update_one);
    take_over_weights();
  }
  if (moves) {
    guarded(0, state_.space.blocks().size(), [&](const UndoLog*) {
      executor_.board().commit_moments(state_.moments, state_.statistics.span());
    });
  }
  return finite;
}

void TrainStep::stop_at_loss() {
  std::string where;
  for (int64_t index = 0; index < size_.batches() && where.empty(); ++index) {
    BatchRows batch = batch_;
    batch.samples = batch_samples(index);
    if (index + 1 < size_.batches()) batch.features = batch.labels = nullptr;  // are read again
    where = executor_.find_non_finite(batch, state_.statistics.data());
  }
  throw run_error(
      fmt::format("step {}: the loss is not finite{}", state_.step + 1,
                  where.empty() ? "" : fmt::format("; the first bad value comes out of {}", where)),
      kNonFiniteHint);
}

void TrainStep::stop_at_gradient(const std::string& consequence) {
  // Slices lie in the order of the backward pass: the first bad one is nearest to where it began.
  const auto bad = [&](const Slice& slice) {
    const auto first = block_sums_.begin() + static_cast<std::ptrdiff_t>(slice.first_block);
    return std::any_of(first, first + static_cast<std::ptrdiff_t>(slice.block_count),
                       [](double sum) { return !std::isfinite(sum); });
  };
  const std::span<const Slice> slices = state_.space.slices();
  const auto first = std::find_if(slices.begin(), slices.end(), bad);
  throw run_error(fmt::format("step {}: the gradient{} is not finite{}", state_.step + 1,
                              first == slices.end() ? "" : " of " + first->name, consequence),
                  kNonFiniteHint);
}

}  // namespace starling
