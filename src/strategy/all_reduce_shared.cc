#include "strategy/all_reduce_shared.h"

#include <fmt/format.h>

#include <algorithm>

#include "strategy/weight_copies.h"

namespace starling {

// What a worker says at a barrier; on a cache line of its own. The barrier orders it.
struct alignas(64) AllReduceShared::Flags {
  Wishes wishes;
  bool finite;
};

AllReduceShared::AllReduceShared(const char* name, World& world, Executor& executor,
                                 const ParameterSpace& space, std::vector<ShardRange> placement,
                                 const std::vector<StepSize>& steps)
    : name_(name),
      world_(world),
      rank_(world.rank()),
      workers_(world.workers()),
      fabric_(*world.shm()),
      executor_(executor),
      space_(space),
      stride_(round_up(space.total_floats(), size_t{4096} / sizeof(float))),
      merges_(executor, std::move(placement)) {
  first_buffer_.assign(static_cast<size_t>(world.workers()) + 1, 0);
  for (size_t worker = 0; worker < merges_.placement().size(); ++worker) {
    size_t most = 0;
    for (const StepSize& step : steps)
      most = std::max(most, merges_.of(step).stacks[worker].size());
    first_buffer_[worker + 1] = first_buffer_[worker] + most;
  }
  constexpr size_t kPage = 4096;
  const auto workers = static_cast<size_t>(world.workers());
  const size_t board_bytes = round_up(executor.board_layout().doubles() * sizeof(double), kPage);
  const size_t sums_bytes = round_up(space.blocks().size() * sizeof(double), kPage);
  const size_t flags_bytes = round_up(workers * sizeof(Flags), kPage);
  const auto lanes = static_cast<size_t>(executor.lanes().count());
  const size_t copies = has_weight_copies(space, workers * lanes) ? workers * lanes : 0;
  size_t late_floats = 0;
  for (const StepSize& step : steps) {
    const LateLayout* const layout = divides_equally() ? executor.late_layout(step) : nullptr;
    if (layout != nullptr) late_floats = std::max(late_floats, layout->floats());
  }
  const size_t floats = (first_buffer_.back() + copies) * stride_ + late_floats;
  segment_.emplace(world.share("starling step",
                               board_bytes + sums_bytes + flags_bytes + floats * sizeof(float)));
  board_ = segment_->bytes().data();
  sums_ = reinterpret_cast<double*>(board_ + board_bytes);
  flags_ = board_ + board_bytes + sums_bytes;
  gradients_ = reinterpret_cast<float*>(flags_ + flags_bytes);
  for (size_t i = 0; i < copies; ++i)
    copies_.push_back(gradients_ + (first_buffer_.back() + i) * stride_);
  const auto of_rank = copies > 0
                           ? std::span(copies_).subspan(static_cast<size_t>(rank()) * lanes, lanes)
                           : std::span<float* const>();
  ExecutorMemory memory{
      .board = reinterpret_cast<double*>(board_),
      .gradient = [this](size_t index) { return gradient(static_cast<size_t>(rank()), index); },
      .weights = lane_weights(space, blocks(), of_rank)};
  if (late_floats > 0) {
    late_ = gradients_ + (first_buffer_.back() + copies) * stride_;
    memory.late = [this](size_t) { return late_; };
  }
  executor.use_memory(std::move(memory));
}

AllReduceShared::~AllReduceShared() { executor_.use_memory({}); }

float* AllReduceShared::gradient(size_t worker, size_t index) const {
  return gradients_ + (first_buffer_[worker] + index) * stride_;
}

AllReduceShared::Flags& AllReduceShared::flags(int rank) const {
  return reinterpret_cast<Flags*>(flags_)[rank];
}

// Whether all workers have as many shards and as many weights to update. Late gradients divide work
// as weights are divided, so where a worker is to have less to do they would be in the way.
bool AllReduceShared::divides_equally() const {
  const std::span<const ShardRange> placement = merges_.placement();
  const auto [fewest, most] = std::minmax_element(
      placement.begin(), placement.end(),
      [](const ShardRange& a, const ShardRange& b) { return a.size() < b.size(); });
  if (fewest->size() == 0 || most->size() > fewest->size() + 1) return false;
  for (int rank = 0; rank < workers_; ++rank) {
    if (!world_.serves(rank)) return false;
  }
  return true;
}

uint64_t AllReduceShared::bytes_read(const MergeCache::Merge& merge) const {
  size_t stacks = 0;  // of others
  for (size_t worker = 0; worker < merge.stacks.size(); ++worker)
    stacks += static_cast<int>(worker) == rank_ ? 0 : merge.stacks[worker].size();
  const LateGradients* const late = executor_.late();
  const BlockRange own = blocks();
  size_t floats = 0;
  for (size_t b = own.first; b < own.last;) {
    const size_t slice = space_.blocks()[b].slice;
    const size_t end =
        std::min(own.last, space_.slices()[slice].first_block + space_.slices()[slice].block_count);
    size_t elements = 0;
    for (; b < end; ++b) elements += space_.blocks()[b].size;
    const LateProduct* const product = late != nullptr ? late->layout().find(slice) : nullptr;
    if (product == nullptr) {
      floats += stacks * elements;
      continue;
    }
    const auto in = static_cast<size_t>(product->in);
    const int others = executor_.options().shards - shards().size();
    const int64_t rows =
        late->layout().samples() / executor_.options().shards * others * product->sample_rows;
    floats += static_cast<size_t>(rows) * (in + (elements + in - 1) / in);
  }
  return floats * sizeof(float);
}

BlockRange AllReduceShared::blocks() const {
  size_t before = 0, all = 0;  // of those that serve
  for (int rank = 0; rank < world_.workers(); ++rank) {
    if (!world_.serves(rank)) continue;
    ++all;
    if (rank < world_.rank()) ++before;
  }
  const auto begin = [&](size_t share) {
    return space_.share_begin(0, space_.blocks().size(), share, all);
  };
  return {begin(before), begin(world_.serves(world_.rank()) ? before + 1 : before)};
}

Status AllReduceShared::describe(const Status& met) const {
  if (met) return met;
  return Failure{met.failure().kind, met.failure().peer,
                 fmt::format("{}, {} bytes of gradient", met.failure().message,
                             space_.total_floats() * sizeof(float))};
}

Status AllReduceShared::meet() {
  if (arrived_ == 0) {
    world_.announce();
    arrived_ = fabric_.barrier().arrive();
    pass(FaultPoint::kAnnounced);
  }
  const World::Waiting waiting(world_);
  const Instant begin = fabric_.now();
  Status met = fabric_.barrier().wait_for_all(arrived_, begin + world_.timeout());
  waiting_ += std::chrono::duration<double>(fabric_.now() - begin).count();
  if (met) arrived_ = 0;
  return describe(met);
}

bool AllReduceShared::has_parts_of(std::span<const int> ranks, bool will_look) const {
  if (completing_) return true;
  // In that look the gradients are overwritten by their sum, perhaps by half of it.
  if (will_look) return false;
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return fabric_.barrier().arrived(rank) >= arrived_; });
}

Status AllReduceShared::exchange(const StepSize& step, Wishes& wishes) {
  if (arrived_ == 0) flags(rank()).wishes = wishes;
  if (Status met = meet(); !met) return met;
  for (int r = 0; r < workers(); ++r) wishes.add(flags(r).wishes);
  const MergeCache::Merge* const merge = &merges_.of(step);
  if (merge != merge_) step_bytes_ = bytes_read(*merge);
  merge_ = merge;
  bytes_moved_ += step_bytes_;
  parts_.clear();
  writers_.clear();
  for (size_t worker = 0; worker < merge_->stacks.size(); ++worker) {
    const size_t count = merge_->stacks[worker].size();
    for (size_t i = 0; i < count; ++i) {
      parts_.push_back(gradient(worker, i));
      writers_.push_back(static_cast<int>(worker) == rank_ ? executor_.stack_lanes()[i]
                                                           : kOtherWorker);
    }
  }
  return {};
}

Status AllReduceShared::share(std::span<double> block_sums) {
  if (arrived_ == 0) {
    const BlockRange own = blocks();
    std::copy(block_sums.begin() + static_cast<std::ptrdiff_t>(own.first),
              block_sums.begin() + static_cast<std::ptrdiff_t>(own.last), sums_ + own.first);
  }
  if (Status met = meet(); !met) return met;
  std::copy_n(sums_, block_sums.size(), block_sums.begin());
  return {};
}

Status AllReduceShared::commit(bool& finite) {
  flags(rank()).finite = finite;
  const Instant begin = fabric_.now();
  if (Status met = world_.complete(); !met) return describe(met);
  waiting_ += std::chrono::duration<double>(fabric_.now() - begin).count();
  if (completing_) return {};  // who has died has not said; the next loss will show it
  for (int r = 0; r < workers(); ++r) finite = finite && flags(r).finite;
  return {};
}

}  // namespace starling
