#include "strategy/desk.h"

#include <unistd.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace starling {
namespace {

constexpr size_t kPageFloats = 4096 / sizeof(float);

size_t bytes_of(size_t floats) { return 2 * round_up(floats, kPageFloats) * sizeof(float); }

}  // namespace

Desk::Desk(size_t floats)
    : Desk(SharedSegment::create("starling desk", bytes_of(floats)), floats) {}

Desk::Desk(SharedSegment segment, size_t floats) : segment_(std::move(segment)), floats_(floats) {
  if (segment_.bytes().size() < bytes_of(floats)) throw std::logic_error("a desk of another job");
}

size_t Desk::stride() const { return round_up(floats_, kPageFloats); }

float* Desk::stack(size_t index) {
  if (index == 0) return gradient().data();
  while (more_.size() < index) more_.emplace_back(floats_);
  return more_[index - 1].data();
}

Desks::Desks(World& world, const Desk& own) {
  const std::array<int64_t, 2> place{getpid(), own.descriptor()};
  const std::vector<int64_t> all = world.gather("sharing memory", std::span<const int64_t>(place));
  mapped_.reserve(static_cast<size_t>(world.workers()));
  for (int rank = 0; rank < world.workers(); ++rank) {
    if (rank == world.rank()) {
      by_rank_.push_back({own.weights(), own.gradient()});
      continue;
    }
    const auto at = 2 * static_cast<size_t>(rank);
    const Desk& desk =
        mapped_.emplace_back(world.open_shared(rank, all[at], all[at + 1]), own.weights().size());
    by_rank_.push_back({desk.weights(), desk.gradient()});
  }
}

}  // namespace starling
