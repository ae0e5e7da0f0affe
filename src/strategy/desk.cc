#include "strategy/desk.h"

#include <unistd.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace starling {
namespace {

constexpr size_t kPageFloats = 4096 / sizeof(float);

size_t bytes_of(size_t floats, size_t seats) {
  return 2 * seats * round_up(floats, kPageFloats) * sizeof(float);
}

}  // namespace

Desk::Desk(size_t floats, size_t seats)
    : Desk(SharedSegment::create("starling desk", bytes_of(floats, seats)), floats, seats) {}

Desk::Desk(SharedSegment segment, size_t floats, size_t seats) : segment_(std::move(segment)) {
  if (segment_.bytes().size() < bytes_of(floats, seats))
    throw std::logic_error("a desk of another job");
  auto* at = reinterpret_cast<float*>(segment_.bytes().data());
  const auto array = [&] {
    const std::span<float> made(at, floats);
    at += round_up(floats, kPageFloats);
    return made;
  };
  for (size_t seat = 0; seat < seats; ++seat) {
    const std::span<float> weights = array();
    seats_.push_back({weights, array()});
  }
}

float* Desk::stack(size_t index) {
  const std::span<float> gradient = seats_[0].gradient;
  if (index == 0) return gradient.data();
  while (more_.size() < index) more_.emplace_back(gradient.size());
  return more_[index - 1].data();
}

Desks::Desks(World& world, const Desk& own) {
  const std::array<int64_t, 2> place{getpid(), own.descriptor()};
  const std::vector<int64_t> all = world.gather("sharing memory", std::span<const int64_t>(place));
  mapped_.reserve(static_cast<size_t>(world.workers()));
  for (int rank = 0; rank < world.workers(); ++rank) {
    if (rank == world.rank()) {
      seats_.push_back(own.seats());
      continue;
    }
    const auto at = 2 * static_cast<size_t>(rank);
    const Desk& desk = mapped_.emplace_back(world.open_shared(rank, all[at], all[at + 1]),
                                            own.seats()[0].weights.size(), own.seats().size());
    seats_.push_back(desk.seats());
  }
}

}  // namespace starling
