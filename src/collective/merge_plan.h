// MergePlan: in which order partial sums are added, so that the result has the bits of the tree
// over all leaves (tensor/tree_sum.h). Parts are whole subtrees, in leaf order, wherever they were
// summed; the plan is the top of the tree, with parts for leaves. Immutable, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace starling {

// Leaves begin … end−1 of the tree; as a node of it, the subtree over them.
struct LeafRange {
  size_t begin = 0, end = 0;
  size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool operator==(const LeafRange&) const = default;
};

class MergePlan {
 public:
  // Requires that the parts are nodes of the tree over their leaves and cover it in order; throws
  // input_error otherwise. No parts at all make an empty plan.
  explicit MergePlan(std::vector<LeafRange> parts);

  size_t leaves() const { return parts_.empty() ? 0 : parts_.back().end; }
  std::span<const LeafRange> parts() const { return parts_; }

  // The additions one by one: part `left` becomes left + right, in this order; the sum ends in
  // part 0.
  struct Addition {
    uint32_t left, right;
    bool operator==(const Addition&) const = default;
  };
  std::vector<Addition> additions() const;

  // Whether the tree over the parts is tree_sum's own over as many leaves.
  bool is_canonical() const { return nodes_.empty() || nodes_.back().canonical; }

  // dst[i] = the sum over all parts at i, for i < n; zeros when there are no parts. Requires a
  // pointer per part, in order. dst may be one of them, but may not overlap one otherwise.
  void sum(std::span<const float* const> parts, size_t n, float* dst) const;
  // The same sum into several arrays, each as above.
  void sum(std::span<const float* const> parts, size_t n, std::span<float* const> outs) const;

 private:
  struct Node {
    uint32_t first, count;  // parts
    uint32_t left, right;   // nodes, when count > 1
    bool canonical;
  };

  uint32_t add_node(LeafRange node, size_t& part);
  void sum_node(uint32_t node, const float* const* parts, size_t n, float* dst,
                float* scratch) const;

  std::vector<LeafRange> parts_;
  std::vector<Node> nodes_;  // children before parents: the root is last
  size_t depth_ = 0;         // of nodes that are not canonical: how much scratch they need
};

}  // namespace starling
