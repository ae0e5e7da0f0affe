// gather: the root ends with everybody's slice.
//
// Steps, chunk by chunk: everybody sends its slice to the root.
// Bytes, L in all, of which l_r are of rank r: rank r sends l_r; the root receives L − l_root.
#pragma once

#include "collective/operation.h"
#include "collective/slices.h"

namespace starling {

class Gather final : public Operation {
 public:
  struct Arguments {
    int root = 0;
    std::span<const std::byte> own;  // as long as this rank's slice
    std::span<std::byte> all;        // at the root; its own slice is copied there
    std::vector<size_t> cuts;        // in bytes: slice i is from cuts[i] to cuts[i + 1]
  };
  Gather(const Channel& channel, Arguments arguments);

 private:
  void go_on() override;
  Span slice(int rank) const;

  Arguments arguments_;
  std::vector<Stream*> receives_;  // at the root
  Stream* send_ = nullptr;         // elsewhere
};

}  // namespace starling
