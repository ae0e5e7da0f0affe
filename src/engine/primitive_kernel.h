// Kernels that are one oneDNN primitive.
#pragma once

#include <string>

#include "engine/kernel.h"
#include "engine/onednn.h"

namespace starling {

class PrimitiveKernel final : public Kernel {
 public:
  PrimitiveKernel(std::string label, BoundPrimitive primitive)
      : Kernel(std::move(label)), primitive_(std::move(primitive)) {}
  void run(const Frame& frame) override { primitive_.run(frame); }

 private:
  BoundPrimitive primitive_;
};

// The same product twice: one that overwrites its result and one that adds to it.
class AccumulatingKernel final : public Kernel {
 public:
  AccumulatingKernel(std::string label, BoundPrimitive overwrite, BoundPrimitive add,
                     bool always_add)
      : Kernel(std::move(label)),
        overwrite_(std::move(overwrite)),
        add_(std::move(add)),
        always_add_(always_add) {}
  void run(const Frame& frame) override {
    (always_add_ || frame.accumulate ? add_ : overwrite_).run(frame);
  }

 private:
  BoundPrimitive overwrite_, add_;
  bool always_add_;
};

}  // namespace starling
