#include "strategy/sharded.h"

#include <algorithm>

namespace starling {

Sharded::Sharded(World& world, Executor& executor, const ParameterSpace& space,
                 std::vector<ShardRange> placement, const Options& options)
    : AllReduceMessages(world, executor, space, std::move(placement),
                        {.exact = true, .overlap = options.overlap}),
      owners_(space, {world.members().begin(), world.members().end()}, options.replicas),
      self_(static_cast<size_t>(world.rank())),
      own_(owners_.floats(self_)),
      copied_(owners_.has_copies() ? owners_.floats(owners_.copied_by(self_)) : Span{}),
      own_gradient_(own_.size()),
      copied_gradient_(copied_.size()),
      own_at_(own_gradient_.data()),
      copied_at_(copied_gradient_.data()),
      finite_(owners_.slices()) {}

BlockRange Sharded::copied_blocks() const {
  return owners_.has_copies() ? owners_.blocks(owners_.copied_by(self_)) : BlockRange{};
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
  return collectives().reduce_scatter(partials, std::move(cuts), slice);
}

Status Sharded::exchange(const StepSize& step, Wishes& wishes) {
  if (Status done = reduce_and_gather(step, wishes); !done || !owners_.has_copies()) return done;
  return wait_for({collectives().shift(std::as_bytes(own_gradient_.span()),
                                       std::as_writable_bytes(copied_gradient_.span()))});
}

Status Sharded::share(std::span<double> block_sums) {
  std::vector<size_t> cuts{0};
  for (size_t i = 0; i < owners_.slices(); ++i)
    cuts.push_back(owners_.blocks(i).last * sizeof(double));
  return wait_for({collectives().all_gather(std::as_writable_bytes(block_sums), std::move(cuts))});
}

Status Sharded::spread(bool& finite) {
  std::vector<size_t> weights, flags;
  for (const size_t cut : owners_.cuts()) weights.push_back(cut * sizeof(float));
  for (size_t i = 0; i <= owners_.slices(); ++i) flags.push_back(i);
  finite_[self_] = finite ? 1 : 0;
  const std::span<float> next{next_weights(), space().total_floats()};
  const Status done = wait_for(
      {collectives().all_gather(std::as_writable_bytes(next), std::move(weights)),
       collectives().all_gather(std::as_writable_bytes(std::span(finite_)), std::move(flags))});
  finite = std::all_of(finite_.begin(), finite_.end(), [](char one) { return one != 0; });
  return done;
}

Status Sharded::close() {
  Wishes known;  // since exchange()
  return was_announced(known) ? Status() : announce(known);
}

}  // namespace starling
