// Kernel: one entry of a plan. It is made at compile time with everything it needs and run many
// times; a run allocates nothing. A kernel belongs to one plan of one lane, so it may keep
// scratch of its own.
#pragma once

#include <string>
#include <utility>

#include "engine/frame.h"

namespace starling {

class Kernel {
 public:
  explicit Kernel(std::string label) : label_(std::move(label)) {}
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  virtual void run(const Frame& frame) = 0;

  // The layer and what is done for it: "conv2d_1 forward".
  const std::string& label() const { return label_; }

 private:
  std::string label_;
};

// A kernel made of a function object: for what needs no class of its own.
template <typename Function>
class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(std::string label, Function function)
      : Kernel(std::move(label)), function_(std::move(function)) {}
  void run(const Frame& frame) override { function_(frame); }

 private:
  Function function_;
};

}  // namespace starling
