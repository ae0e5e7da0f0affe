// broadcast: everybody ends with the bytes of the root.
//
// Parts: ranks counted from the root; the parent of v is v without its lowest set bit (a binomial
// tree of depth ⌈log₂ n⌉). Steps, chunk by chunk: receive from the parent, send on to the children,
// the one with the most descendants first; chunks follow each other through the tree.
// Bytes, L in all: everybody but the root receives L once; a rank with c children sends c · L, the
// root ⌈log₂ n⌉ · L.
#pragma once

#include "collective/operation.h"

namespace starling {

class Broadcast final : public Operation {
 public:
  struct Arguments {
    int root = 0;
    std::span<std::byte> bytes;  // read at the root, written elsewhere
  };
  Broadcast(const Channel& channel, const Arguments& arguments);

 private:
  void go_on() override;
  std::span<std::byte> chunk(size_t k) const;

  Arguments arguments_;
  Stream* parent_ = nullptr;  // none at the root
  std::vector<Stream*> children_;
};

// The children of a rank, in the order in which they are sent to.
std::vector<int> broadcast_children(int rank, int world, int root);

}  // namespace starling
