// all_gather: every rank ends with everybody's slice.
//
// Steps, all ranks at once, chunk by chunk: send the own slice to every other; receive theirs.
// Bytes of rank r, L bytes in all, of which l_r are its own, n ranks: sent (n−1) · l_r; received
// L − l_r.
//
// As a part of another operation it can be held back: it sends only chunks that are ready, and
// receives only into memory that is free.
#pragma once

#include "collective/operation.h"
#include "collective/slices.h"

namespace starling {

class AllGather final : public Operation {
 public:
  struct Arguments {
    std::span<std::byte> all;  // with the own slice in its place
    std::vector<size_t> cuts;  // in bytes: slice i is from cuts[i] to cuts[i + 1]
    bool held = false;         // wait for set_ready and set_free
  };

  AllGather(const Channel& channel, Arguments arguments, const char* name = "all_gather");

  // The first `chunks` chunks of the own slice are there; those of the slice of `peer` may be
  // received.
  void set_ready(size_t chunks) { ready_ = chunks; }
  void set_free(int peer, size_t chunks) { free_[static_cast<size_t>(peer)] = chunks; }

  size_t step() const override { return Operation::step(); }
  std::optional<Transfer> waiting() const override { return Operation::waiting(); }
  void abandon() override { Operation::abandon(); }

 private:
  void go_on() override;
  Span slice(int rank) const;
  std::span<std::byte> chunk(int rank, size_t k) const;

  Arguments arguments_;
  size_t ready_;
  std::vector<size_t> free_;       // by peer
  std::vector<Stream*> sends_;     // by peer but this one
  std::vector<Stream*> receives_;  // likewise
};

}  // namespace starling
