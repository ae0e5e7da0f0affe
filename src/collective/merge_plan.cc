#include "collective/merge_plan.h"

#include <algorithm>
#include <cstring>

#include "collective/sum_into.h"
#include "starling/error.h"
#include "tensor/kernels.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

// Floats summed at a time: the partial sums of one chunk stay in the first-level cache.
constexpr size_t kChunk = 2048;

// Of sums that are not canonical. One for each thread, kept: lanes sum many blocks in every step.
struct Scratch {
  std::vector<float> floats;
  std::vector<const float*> at;
};

Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace

MergePlan::MergePlan(std::vector<LeafRange> parts) : parts_(std::move(parts)) {
  if (parts_.empty()) return;
  size_t part = 0;
  add_node({0, leaves()}, part);
  if (part != parts_.size()) {
    throw input_error("partial sums do not cover the tree in order",
                      "make them with partials_of, for all workers of one placement");
  }
}

uint32_t MergePlan::add_node(LeafRange node, size_t& part) {
  const uint32_t first = static_cast<uint32_t>(part);
  if (part < parts_.size() && parts_[part] == node) {
    ++part;
    nodes_.push_back({.first = first, .count = 1, .left = 0, .right = 0, .canonical = true});
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  if (node.size() < 2) {
    throw input_error("a partial sum is not a whole subtree of the shards",
                      "make partial sums with partials_of");
  }
  const size_t middle = node.begin + tree_split(node.size());
  const uint32_t left = add_node({node.begin, middle}, part);
  const uint32_t right = add_node({middle, node.end}, part);
  const uint32_t count = static_cast<uint32_t>(part) - first;
  const bool canonical =
      nodes_[left].canonical && nodes_[right].canonical && nodes_[left].count == tree_split(count);
  nodes_.push_back(
      {.first = first, .count = count, .left = left, .right = right, .canonical = canonical});
  depth_ += !canonical;
  return static_cast<uint32_t>(nodes_.size() - 1);
}

std::vector<MergePlan::Addition> MergePlan::additions() const {
  std::vector<Addition> result;
  for (const Node& node : nodes_) {
    if (node.count > 1) result.push_back({nodes_[node.left].first, nodes_[node.right].first});
  }
  return result;
}

void MergePlan::sum_node(uint32_t index, const float* const* parts, size_t n, float* dst,
                         float* scratch) const {
  const Node& node = nodes_[index];
  if (node.canonical) return tree_sum(std::span(parts + node.first, node.count), n, dst);
  sum_node(node.left, parts, n, dst, scratch);
  const Node& right = nodes_[node.right];
  const float* addend = parts[right.first];
  if (right.count > 1) {
    sum_node(node.right, parts, n, scratch, scratch + kChunk);
    addend = scratch;
  }
  add(static_cast<int64_t>(n), dst, addend, dst);
}

void MergePlan::sum(std::span<const float* const> parts, size_t n, float* dst) const {
  sum(parts, n, std::span<float* const>(&dst, 1));
}

void MergePlan::sum(std::span<const float* const> parts, size_t n,
                    std::span<float* const> outs) const {
  if (parts_.empty()) {
    for (float* out : outs) std::fill_n(out, n, 0.0f);
    return;
  }
  if (is_canonical() && parts.size() <= kTreeLeavesInRegisters && outs.size() > 1) {
    return sum_into(parts, n, outs);
  }
  // tree_sum may write over its first part only. An array that is another part is written when the
  // chunk is summed, by copying from one that may be written before, or from aside.
  const auto is_part = [&](const float* out) {
    return std::find(parts.begin() + 1, parts.end(), out) != parts.end();
  };
  const auto first = std::find_if_not(outs.begin(), outs.end(), is_part);
  float* const direct = first == outs.end() ? nullptr : *first;
  if (is_canonical() && outs.size() == 1 && direct != nullptr) return tree_sum(parts, n, direct);

  auto& [scratch, at] = scratch_of_thread();
  if (scratch.size() < (depth_ + 1) * kChunk) scratch.resize((depth_ + 1) * kChunk);
  at.assign(parts.begin(), parts.end());
  for (size_t begin = 0; begin < n; begin += kChunk) {
    const size_t count = std::min(kChunk, n - begin);
    float* const target = direct == nullptr ? scratch.data() : direct + begin;
    sum_node(static_cast<uint32_t>(nodes_.size() - 1), at.data(), count, target,
             scratch.data() + kChunk);
    for (float* out : outs) {
      if (out != direct) std::memcpy(out + begin, target, count * sizeof(float));
    }
    for (const float*& part : at) part += count;
  }
}

}  // namespace starling
