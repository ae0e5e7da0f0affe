// sum_into: tree_sum into several arrays in one pass. Summing into one and copying to the others
// takes half as long again once the arrays leave the first-level cache. Thread-safe, allocates
// nothing.
#pragma once

#include <cstddef>
#include <span>

namespace starling {

// outs[·][i] = the sum of parts[·][i] along the tree, for i < n. Requires 1 to
// kTreeLeavesInRegisters parts. An array of outs may be one of the parts, but may not overlap one
// otherwise.
void sum_into(std::span<const float* const> parts, size_t n, std::span<float* const> outs);

}  // namespace starling
