// shift: every rank of a ring ends with the slice of the rank before it; that of the last goes to
// the first. The ring is all ranks, or some of them; the others have no part in it.
//
// Steps, chunk by chunk: send the own slice to rank r + 1, receive that of rank r − 1 (modulo n).
// Bytes of rank r, whose slice has l_r: sent l_r; received l_(r−1). A rank alone receives nothing.
#pragma once

#include "collective/operation.h"
#include "collective/slices.h"

namespace starling {

class Shift final : public Operation {
 public:
  struct Arguments {
    std::span<const std::byte> own;
    std::span<std::byte> before;  // as long as the slice of the rank before
    std::span<const int> ring;    // in its order; empty: all
  };
  Shift(const Channel& channel, const Arguments& arguments);

 private:
  void go_on() override;

  const Arguments arguments_;
  Stream* send_ = nullptr;  // both null for a rank alone, and for one that has no part
  Stream* receive_ = nullptr;
};

}  // namespace starling
