#include "strategy/ownership.h"

#include <fmt/format.h>

#include <algorithm>

#include "starling/error.h"

namespace starling {

Ownership::Ownership(const ParameterSpace& space, std::vector<int> members, int replicas,
                     std::vector<int> keepers, std::vector<double> shares)
    : members_(std::move(members)), keepers_(std::move(keepers)), replicas_(replicas) {
  const std::span<const Block> blocks = space.blocks();
  const size_t owners = members_.size() - keepers_.size();
  double share_before = 0;
  for (size_t i = 0, before = 0; i <= slices(); ++i) {  // owners before that slice
    size_t wanted = before * space.total_floats() / owners;
    if (!shares.empty() && i < slices()) {
      wanted = static_cast<size_t>(share_before * static_cast<double>(space.total_floats()));
      share_before += shares[i];
    }
    const bool keeps =
        i < slices() && std::find(keepers_.begin(), keepers_.end(), members_[i]) != keepers_.end();
    before += keeps ? 0 : 1;
    const auto at =
        std::lower_bound(blocks.begin(), blocks.end(), wanted,
                         [](const Block& block, size_t offset) { return block.offset < offset; });
    blocks_.push_back(static_cast<size_t>(at - blocks.begin()));
    floats_.push_back(at == blocks.end() ? space.total_floats() : at->offset);
  }
}

Ownership Ownership::restored(const ParameterSpace& space, std::vector<int> members, int replicas,
                              std::vector<int> keepers, std::vector<size_t> block_cuts) {
  const std::span<const Block> blocks = space.blocks();
  const bool fits = block_cuts.size() == members.size() + 1 && block_cuts.front() == 0 &&
                    block_cuts.back() == blocks.size() &&
                    std::is_sorted(block_cuts.begin(), block_cuts.end());
  if (!fits)
    throw run_error("the slices of the other workers are not those of this model",
                    "start the run again with one version of Starling");
  Ownership owners;
  owners.members_ = std::move(members);
  owners.keepers_ = std::move(keepers);
  owners.replicas_ = replicas;
  for (const size_t cut : block_cuts)
    owners.floats_.push_back(cut == blocks.size() ? space.total_floats() : blocks[cut].offset);
  owners.blocks_ = std::move(block_cuts);
  return owners;
}

std::optional<size_t> Ownership::slice_of(int name) const {
  const auto at = std::find(members_.begin(), members_.end(), name);
  if (at == members_.end()) return std::nullopt;
  return static_cast<size_t>(at - members_.begin());
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

Ownership owners_of(const World& world, const ParameterSpace& space, int replicas,
                    std::vector<double> shares) {
  if (replicas < 0 || replicas > 1) {
    throw input_error(fmt::format("strategy.replicas = {} is out of range", replicas),
                      "use 1 for a copy on the next worker, or 0 for none");
  }
  std::vector<int> members, keepers;
  const bool one_serves = world.computing() == world.workers() - 1;
  for (int rank = 0; rank < world.workers(); ++rank) {
    const bool keeps = one_serves && replicas > 0 && keepers.empty() && !world.serves(rank);
    if (world.serves(rank) || keeps) members.push_back(world.name_of(rank));
    if (keeps) keepers.push_back(world.name_of(rank));
  }
  return {space, std::move(members), replicas, std::move(keepers), std::move(shares)};
}

}  // namespace starling
