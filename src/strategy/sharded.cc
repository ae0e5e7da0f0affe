#include "strategy/sharded.h"

#include <algorithm>

namespace starling {

Sharded::Sharded(World& world, Executor& executor, const ParameterSpace& space,
                 std::vector<ShardRange> placement, const Options& options)
    : AllReduceMessages(world, executor, space, std::move(placement),
                        {.exact = true, .overlap = options.overlap, .costs = {}}),
      name_(options.name),
      owners_(owners_of(world, space, options.replicas)),
      self_(owners_.slice_of(world.name())),
      own_(self_ ? owners_.floats(*self_) : Span{}),
      copied_(self_ && owners_.has_copies() ? owners_.floats(owners_.copied_by(*self_)) : Span{}),
      own_gradient_(own_.size()),
      copied_gradient_(copied_.size()),
      own_at_(own_gradient_.data()),
      copied_at_(copied_gradient_.data()),
      finite_(static_cast<size_t>(world.workers())) {
  for (int rank = 0; rank < world.workers(); ++rank) {
    if (owners_.slice_of(world.name_of(rank))) ring_.push_back(rank);
  }
}

std::vector<size_t> Sharded::cuts_by_rank(std::span<const size_t> by_slice) const {
  std::vector<size_t> cuts{by_slice[0]};
  for (int rank = 0; rank < workers(); ++rank) {
    const auto at = std::find(ring_.begin(), ring_.end(), rank);
    cuts.push_back(at == ring_.end() ? cuts.back()
                                     : by_slice[static_cast<size_t>(at - ring_.begin()) + 1]);
  }
  return cuts;
}

BlockRange Sharded::copied_blocks() const {
  return self_ && owners_.has_copies() ? owners_.blocks(owners_.copied_by(*self_)) : BlockRange{};
}

// Slices are of the whole space, so most buckets are of one owner or two.
Collectives::Handle Sharded::start(const Bucket& bucket, std::span<const float* const> partials) {
  const auto in_bucket = [&](size_t cut) {
    return std::clamp(cut, bucket.offset, bucket.offset + bucket.size);
  };
  std::vector<size_t> cuts;
  for (const size_t cut : owners_.cuts()) cuts.push_back(in_bucket(cut) - bucket.offset);
  const Span part{in_bucket(own_.begin), in_bucket(own_.end)};
  const std::span<float> slice =
      part.size() == 0 ? std::span<float>()
                       : own_gradient_.span().subspan(part.begin - own_.begin, part.size());
  return collectives().reduce_scatter(partials, cuts_by_rank(cuts), slice);
}

Status Sharded::exchange(const StepSize& step, Wishes& wishes) {
  if (Status done = reduce_and_gather(step, wishes); !done || !owners_.has_copies()) return done;
  return wait_for({collectives().shift(std::as_bytes(own_gradient_.span()),
                                       std::as_writable_bytes(copied_gradient_.span()), ring_)});
}

Status Sharded::share(std::span<double> block_sums) {
  std::vector<size_t> cuts{0};
  for (size_t i = 0; i < owners_.slices(); ++i)
    cuts.push_back(owners_.blocks(i).last * sizeof(double));
  return wait_for(
      {collectives().all_gather(std::as_writable_bytes(block_sums), cuts_by_rank(cuts))});
}

Status Sharded::spread(bool& finite) {
  std::vector<size_t> weights, flags;
  for (const size_t cut : owners_.cuts()) weights.push_back(cut * sizeof(float));
  for (size_t i = 0; i <= finite_.size(); ++i) flags.push_back(i);
  finite_[static_cast<size_t>(rank())] = finite ? 1 : 0;
  const std::span<float> next{next_weights(), space().total_floats()};
  const Status done = wait_for(
      {collectives().all_gather(std::as_writable_bytes(next), cuts_by_rank(weights)),
       collectives().all_gather(std::as_writable_bytes(std::span(finite_)), std::move(flags))});
  finite = std::all_of(finite_.begin(), finite_.end(), [](char one) { return one != 0; });
  return done;
}

Status Sharded::close() {
  Wishes known;  // since exchange()
  return was_announced(known) ? Status() : announce(known);
}

}  // namespace starling
