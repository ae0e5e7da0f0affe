// Desk: where a worker that trains apart computes. A desk has seats, one for each lease that the
// worker may have at a time: a copy of the weights, and the gradient. It is memory that other
// processes of its host can map. Desks: those of all workers of a view, so that who serves reads
// gradients and puts weights there, and nothing is sent.
//
// Who may touch what when is the matter of the parameter service (param_peer.h). A desk stays when
// its worker is gone, for as long as somebody has it.
#pragma once

#include <deque>
#include <span>
#include <utility>
#include <vector>

#include "cluster/world.h"
#include "fabric/shm/shared_segment.h"
#include "tensor/buffer.h"

namespace starling {

struct Seat {
  std::span<float> weights, gradient;
};

class Desk {
 public:
  // Of this process, for so many parameters. Throws Error when there is no room.
  Desk(size_t floats, size_t seats);
  // That of another, mapped.
  Desk(SharedSegment segment, size_t floats, size_t seats);

  const std::vector<Seat>& seats() const { return seats_; }
  // Of the stacks of an executor (ExecutorMemory): the first is the gradient of the first seat.
  float* stack(size_t index);
  int descriptor() const { return segment_.fd(); }

 private:
  SharedSegment segment_;
  std::vector<Seat> seats_;
  std::deque<Buffer<float>> more_;  // stacks
};

class Desks {
 public:
  Desks() = default;  // none
  // All workers call it, within a unit; `own` is this one's, and outlives it.
  Desks(World& world, const Desk& own);
  // By rank.
  explicit Desks(std::vector<std::vector<Seat>> seats) : seats_(std::move(seats)) {}

  bool empty() const { return seats_.empty(); }
  const Seat& at(int rank, size_t seat) const { return seats_[static_cast<size_t>(rank)][seat]; }

 private:
  std::vector<Desk> mapped_;
  std::vector<std::vector<Seat>> seats_;
};

}  // namespace starling
