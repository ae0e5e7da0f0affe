// all_reduce_stepped: what halving-doubling and the ring have in common. Both are a list of steps,
// made in advance from agreed numbers: in each a rank sends one range to a peer and receives one
// from a peer, which it adds to its own or stores; the next step begins when both are done.
#pragma once

#include "collective/operation.h"
#include "collective/slices.h"
#include "tensor/buffer.h"

namespace starling {

struct ReduceStep {
  int to = 0, from = 0;
  Span send, receive;    // in floats
  bool add = false;      // what comes is added to the own, else it replaces it
  bool own_left = true;  // in a + b, the own is a
  bool operator==(const ReduceStep&) const = default;
};

// The bytes that a list of steps sends.
size_t bytes_sent(std::span<const ReduceStep> steps);

class AllReduceStepped : public Operation {
 protected:
  // `own` is this rank's sum, and may be out itself; both stay until the end.
  AllReduceStepped(const char* name, const Channel& channel, std::vector<ReduceStep> steps,
                   const float* own, std::span<float> out);

  size_t step() const override { return step_; }

 private:
  void go_on() override;
  void begin_step();
  void take_chunk(const ReduceStep& now);
  float* place(size_t chunk);

  std::vector<ReduceStep> steps_;
  size_t step_ = 0;
  const float* source_;  // the own sum: where it was given until the first step is done, then out
  std::span<float> out_;
  size_t chunk_;  // floats
  Tag tags_per_step_ = 0;
  size_t taken_ = 0;  // chunks of this step
  Stream* send_ = nullptr;
  Stream* receive_ = nullptr;
  Buffer<float> received_;
};

}  // namespace starling
