// KeptSlice: a slice of the parameters as a server keeps it while workers train apart: its weights
// as they are now, and room for the gradients that workers send, until the conductor says what
// becomes of them. The optimizer state is kept by others, and changed here.
//
// One thread.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "optim/update.h"
#include "tensor/buffer.h"
#include "tensor/parameter_space.h"

namespace starling {

class KeptSlice {
 public:
  // Where the optimizer's state of that kind is, for the float at `offset` of the space.
  using StateAt = std::function<float*(size_t kind, size_t offset)>;
  // Blocks first … last − 1, of which the weights are those of the whole space. Both outlive it.
  KeptSlice(const ParameterSpace& space, size_t first, size_t last, std::span<const float> weights,
            StateAt state);

  size_t offset() const { return offset_; }  // floats of the space before it
  std::span<const float> weights() const { return weights_.span(); }
  // Where a worker's gradient of this slice goes, if it is sent; it may have several under way.
  std::span<float> room_for(int worker, size_t seat = 0);

  // An update with the mean of these gradients by their weights: their numbers of samples, of which
  // each is the mean.
  struct Part {
    const float* gradient;  // of the slice
    double weight;
  };
  void apply(std::span<const Part> parts, const UpdateSettings& settings, size_t states);

  // The same in two steps, if they come one by one: all that were added since the last update.
  void add(const Part& part);
  void apply_added(const UpdateSettings& settings, size_t states);

 private:
  const ParameterSpace& space_;
  const size_t first_, last_, offset_;
  const StateAt state_;
  Buffer<float> weights_;
  Buffer<float> sum_;       // of what was added, by weight; none before that
  double sum_weights_ = 0;  // 0: nothing
  std::map<std::pair<int, size_t>, Buffer<float>> rooms_;
};

}  // namespace starling
