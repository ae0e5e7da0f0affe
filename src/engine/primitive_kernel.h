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

}  // namespace starling
