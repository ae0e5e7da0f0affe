// Copies of weights in the form that kernels want (blocked, transposed or rounded to bf16). The
// canonical weights are plain row-major f32; these copies belong to the plans of one process,
// are shared read-only by its lanes, and are refreshed after each update.
#pragma once

#include <dnnl.hpp>
#include <functional>
#include <list>
#include <string>

#include "engine/frame.h"
#include "tensor/buffer.h"

namespace starling {

class PackedWeights {
 public:
  // `weights` is the canonical space; it outlives this.
  explicit PackedWeights(const float* weights) : weights_(weights) {}

  // A copy of the weights at `offset` (described by `from`) in the layout and type `to`. Packed at
  // once, and kept; asking again for the same gives the same copy. Not while lanes run.
  Ref require(size_t offset, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  // The same, with each weight rounded to bf16 but stored as f32: bf16 for machines without it.
  Ref require_rounded(size_t offset, const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  // A copy of `floats` floats that `pack` makes of the weights at `offset`; `form` is its name, and
  // copies with the same offset and form are one.
  using Pack = std::function<void(const float* weights, float* copy)>;
  Ref require(size_t offset, const std::string& form, size_t floats, const Pack& pack);

  // The canonical weights are these from now on; copies are of the others until they are refreshed.
  void use(const float* weights) { weights_ = weights; }
  // Lane `lane` of `lanes` refreshes its part of the copies.
  void refresh(int lane, int lanes);

  size_t bytes() const;

 private:
  struct Copy {
    size_t offset;
    std::string form;  // empty: described by `from`, `to` and `rounded`
    dnnl::memory::desc from, to;
    bool rounded;
    Buffer<std::byte> memory;
    std::function<void(const float* weights)> refresh;  // at `offset`
  };
  Ref require(size_t offset, const dnnl::memory::desc& from, const dnnl::memory::desc& to,
              bool rounded);

  const float* weights_;
  std::list<Copy> copies_;
};

}  // namespace starling
