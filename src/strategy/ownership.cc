#include "strategy/ownership.h"

#include <algorithm>

namespace starling {

Ownership::Ownership(const ParameterSpace& space, std::vector<int> members, int replicas)
    : members_(std::move(members)), replicas_(replicas) {
  const std::span<const Block> blocks = space.blocks();
  for (size_t i = 0; i <= slices(); ++i) {
    const size_t wanted = i * space.total_floats() / slices();
    const auto at =
        std::lower_bound(blocks.begin(), blocks.end(), wanted,
                         [](const Block& block, size_t offset) { return block.offset < offset; });
    blocks_.push_back(static_cast<size_t>(at - blocks.begin()));
    floats_.push_back(at == blocks.end() ? space.total_floats() : at->offset);
  }
}

std::vector<Span> Ownership::kept_by(size_t member) const {
  std::vector<Span> kept{floats(member)};
  if (has_copies()) kept.push_back(floats(copied_by(member)));
  return kept;
}

std::optional<int> Ownership::holder(size_t slice, std::span<const int> present) const {
  const auto is_present = [&](int name) {
    return std::find(present.begin(), present.end(), name) != present.end();
  };
  if (is_present(members_[slice])) return members_[slice];
  const int next = members_[(slice + 1) % slices()];
  if (has_copies() && is_present(next)) return next;
  return std::nullopt;
}

}  // namespace starling
