#include "train/optimizer_transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kWhat = "moving optimizer state";

void require_all_slices(const World& world, const Ownership& owners) {
  std::string lost;
  for (size_t slice = 0; slice < owners.slices(); ++slice) {
    if (owners.floats(slice).size() == 0 || owners.holder(slice, world.members())) continue;
    const int owner = owners.members()[slice];
    lost += fmt::format("{}slice {} with worker {}", lost.empty() ? "" : ", ", slice + 1, owner);
    if (owners.has_copies()) {
      lost += fmt::format(" and worker {}, which had the copy",
                          owners.members()[(slice + 1) % owners.slices()]);
    }
  }
  if (lost.empty()) return;
  throw run_error(
      fmt::format("of the {} slices of the optimizer state these were lost: {}{}", owners.slices(),
                  lost, owners.has_copies() ? "" : " (strategy.replicas = 0 keeps no copy)"),
      fmt::format("--resume goes on from the last checkpoint, with the same bits{}",
                  owners.has_copies() ? "" : "; strategy.replicas = 1 survives the loss of one"));
}

struct Wish {
  int rank;
  Span floats;
};

// `to` is where this worker's wishes go.
void transfer(World& world, const SplitOptimizer& split, std::span<const Wish> wishes,
              OptimizerState& to) {
  if (split.own.kinds() == 0) return;
  require_all_slices(world, split.owners);
  for (const Wish& wish : wishes) {
    for (size_t slice = 0; slice < split.owners.slices(); ++slice) {
      const Span held = split.owners.floats(slice);
      const size_t begin = std::max(held.begin, wish.floats.begin);
      const size_t end = std::min(held.end, wish.floats.end);
      if (begin >= end) continue;
      const int from = world.rank_of(*split.owners.holder(slice, world.members()));
      for (size_t kind = 0; kind < to.kinds(); ++kind) {
        World::Handover given{from, wish.rank, (end - begin) * sizeof(float)};
        if (world.rank() == from)
          given.out = std::as_bytes(std::span(split.own.at(kind, begin), end - begin));
        if (world.rank() == wish.rank)
          given.in = std::as_writable_bytes(std::span(to.at(kind, begin), end - begin));
        if (from != wish.rank) {
          world.hand_over(kWhat, given);
        } else if (world.rank() == from) {
          std::copy(given.out.begin(), given.out.end(), given.in.begin());
        }
      }
    }
  }
}

}  // namespace

OptimizerState split_anew(World& world, const SplitOptimizer& split, const Ownership& wanted) {
  const std::optional<size_t> own = wanted.slice_of(world.name());
  OptimizerState to(split.own.kinds(), own ? wanted.kept_by(*own) : std::vector<Span>());
  if (split.owners.slices() == 0) return to;
  std::vector<Wish> wishes;
  for (size_t member = 0; member < wanted.slices(); ++member) {
    for (const Span& floats : wanted.kept_by(member))
      wishes.push_back({world.rank_of(wanted.members()[member]), floats});
  }
  transfer(world, split, wishes, to);
  return to;
}

OptimizerState gather_optimizer(World& world, const SplitOptimizer& split) {
  const Span whole{0, split.owners.cuts().back()};
  OptimizerState to(split.own.kinds(),
                    world.is_chief() ? std::vector<Span>{whole} : std::vector<Span>());
  transfer(world, split, std::vector<Wish>{{0, whole}}, to);
  return to;
}

void spread_slices(World& world, const Ownership& owners, std::span<float> whole) {
  require_all_slices(world, owners);
  for (size_t slice = 0; slice < owners.slices(); ++slice) {
    const Span floats = owners.floats(slice);
    if (floats.size() == 0) continue;
    const int from = world.rank_of(*owners.holder(slice, world.members()));
    const std::span<float> part = whole.subspan(floats.begin, floats.size());
    for (int to = 0; to < world.workers(); ++to) {
      if (to == from) continue;
      World::Handover given{from, to, part.size_bytes()};
      if (world.rank() == from) given.out = std::as_bytes(std::span<const float>(part));
      if (world.rank() == to) given.in = std::as_writable_bytes(part);
      world.hand_over("sharing weights", given);
    }
  }
}

size_t split_optimizer_bytes(const ParameterSpace& space, size_t kinds, int workers, int replicas) {
  std::vector<int> members(static_cast<size_t>(workers));
  std::iota(members.begin(), members.end(), 0);
  const Ownership owners(space, members, replicas);
  size_t most = 0;
  for (size_t member = 0; member < owners.slices(); ++member) {
    size_t floats = 0;
    for (const Span& kept : owners.kept_by(member)) floats += kept.size();
    most = std::max(most, floats);
  }
  return kinds * most * sizeof(float);
}

}  // namespace starling
