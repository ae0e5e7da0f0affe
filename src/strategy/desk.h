// Desk: where a worker that trains apart computes: its copy of the weights and its gradient, in
// memory that other processes of its host can map. Desks: those of all workers of a view, so that
// who serves reads gradients and puts weights there, and nothing is sent.
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

class Desk {
 public:
  // Of this process, for so many parameters. Throws Error when there is no room.
  explicit Desk(size_t floats);
  // That of another, mapped.
  Desk(SharedSegment segment, size_t floats);

  std::span<float> weights() const { return {at(0), floats_}; }
  std::span<float> gradient() const { return {at(stride()), floats_}; }
  // Of the stacks of an executor (ExecutorMemory): the first is the gradient() that others read.
  float* stack(size_t index);
  int descriptor() const { return segment_.fd(); }

 private:
  size_t stride() const;
  float* at(size_t offset) const {
    return reinterpret_cast<float*>(segment_.bytes().data()) + offset;
  }

  SharedSegment segment_;
  size_t floats_;
  std::deque<Buffer<float>> more_;  // stacks
};

class Desks {
 public:
  struct Place {
    std::span<float> weights, gradient;
  };

  Desks() = default;  // none
  // All workers call it, within a unit; `own` is this one's, and outlives it.
  Desks(World& world, const Desk& own);
  explicit Desks(std::vector<Place> by_rank) : by_rank_(std::move(by_rank)) {}

  bool empty() const { return by_rank_.empty(); }
  std::span<float> weights(int rank) const { return by_rank_[static_cast<size_t>(rank)].weights; }
  std::span<const float> gradient(int rank) const {
    return by_rank_[static_cast<size_t>(rank)].gradient;
  }

 private:
  std::vector<Desk> mapped_;
  std::vector<Place> by_rank_;
};

}  // namespace starling
