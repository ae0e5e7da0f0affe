#include "train/block_gradients.h"

#include <algorithm>

#include "base/claim.h"
#include "tensor/tree_sum.h"

namespace starling {
namespace {

bool fits_registers(const GradientParts& parts) {
  const size_t count = parts.at.size();
  return count == 1 || (count <= kTreeLeavesInRegisters && parts.plan->is_canonical());
}

// A lane claims what it has not written.
uint32_t claimed_by(const GradientParts& parts, int lane) {
  if (!claims_pay() || !fits_registers(parts)) return 0;
  uint32_t claimed = 0;
  for (size_t i = 0; i < parts.writers.size(); ++i)
    claimed |= uint32_t{parts.writers[i] != lane} << i;
  return claimed;
}

}  // namespace

BlockGradients::BlockGradients(const ParameterSpace& space, const GradientParts& parts,
                               LateGradients* late, int lane, size_t end)
    : space_(space),
      parts_(parts),
      late_(late),
      lane_(lane),
      end_(end),
      in_registers_(fits_registers(parts)),
      claimed_(claimed_by(parts, lane)) {}

BlockGradient BlockGradients::of(size_t index) {
  const Block& block = space_.blocks()[index];
  if (late_ != nullptr) {
    if (const LateProduct* const product = late_->layout().find(block.slice); product != nullptr) {
      at_[0] = late_gradient(*product, block);
      return {{at_.data(), 1}};
    }
  }
  const size_t count = parts_.at.size();
  for (size_t i = 0; i < count; ++i) at_[i] = parts_.at[i] + (block.offset - parts_.origin);
  if (in_registers_) return {{at_.data(), count}, claimed_};
  parts_.plan->sum({at_.data(), count}, block.size, sum_.data());
  at_[0] = sum_.data();
  return {{at_.data(), 1}};
}

const float* BlockGradients::late_gradient(const LateProduct& product, const Block& block) {
  const Slice& slice = space_.slices()[block.slice];
  const size_t first = block.offset - slice.offset;
  if (piece_slice_ != block.slice || first < piece_.first || first + block.size > piece_.last) {
    const Block& last = space_.blocks()[std::min(end_, slice.first_block + slice.block_count) - 1];
    piece_ = late_->compute(lane_, product, first, last.offset + last.size - slice.offset);
    piece_slice_ = block.slice;
  }
  return piece_.at + (first - piece_.first);
}

}  // namespace starling
