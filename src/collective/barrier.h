// barrier: nobody is done before all have begun.
//
// Steps s = 0, 1, …, ⌈log₂ n⌉ − 1 (dissemination): send an empty message to rank + 2^s, wait for
// the one from rank − 2^s. No bytes but headers.
#pragma once

#include "collective/operation.h"

namespace starling {

class Barrier final : public Operation {
 public:
  explicit Barrier(const Channel& channel) : Operation("barrier", channel) {}

 private:
  void go_on() override;
  size_t step() const override { return step_; }

  size_t step_ = 0;
  Stream* send_ = nullptr;
  Stream* receive_ = nullptr;
};

}  // namespace starling
