#include "param/kept_slice.h"

#include <algorithm>
#include <array>
#include <utility>

namespace starling {
namespace {

size_t offset_of(const ParameterSpace& space, size_t block) {
  return block < space.blocks().size() ? space.blocks()[block].offset : space.total_floats();
}

}  // namespace

KeptSlice::KeptSlice(const ParameterSpace& space, size_t first, size_t last,
                     std::span<const float> weights, StateAt state)
    : space_(space),
      first_(first),
      last_(last),
      offset_(offset_of(space, first)),
      state_(std::move(state)),
      weights_(offset_of(space, last) - offset_) {
  std::copy_n(weights.begin() + static_cast<std::ptrdiff_t>(offset_), weights_.size(),
              weights_.data());
}

std::span<float> KeptSlice::room_for(int worker, size_t seat) {
  Buffer<float>& room = rooms_[{worker, seat}];
  if (room.size() != weights_.size()) room = Buffer<float>(weights_.size());
  return room.span();
}

void KeptSlice::add(const Part& part) {
  if (sum_.empty()) sum_ = Buffer<float>(weights_.size());
  const auto weight = static_cast<float>(part.weight);
  if (sum_weights_ == 0) std::fill(sum_.begin(), sum_.end(), 0.0f);
  for (size_t i = 0; i < sum_.size(); ++i) sum_[i] += weight * part.gradient[i];
  sum_weights_ += part.weight;
}

void KeptSlice::apply_added(const UpdateSettings& settings, size_t states) {
  if (sum_weights_ == 0) return;
  const auto share = static_cast<float>(1 / std::exchange(sum_weights_, 0));
  for (float& value : sum_) value *= share;
  const Part mean{sum_.data(), 1};
  apply({&mean, 1}, settings, states);
}

void KeptSlice::apply(std::span<const Part> parts, const UpdateSettings& settings, size_t states) {
  double weights = 0;
  for (const Part& part : parts) weights += part.weight;
  alignas(kAlignment) std::array<float, kBlockElements> mean;
  for (size_t b = first_; b < last_; ++b) {
    const Block& block = space_.blocks()[b];
    const size_t at = block.offset - offset_;
    const float* gradient = parts[0].gradient + at;
    if (parts.size() > 1) {
      mean.fill(0);
      for (const Part& part : parts) {
        const float* const own = part.gradient + at;
        const auto share = static_cast<float>(part.weight / weights);
        for (size_t i = 0; i < block.size; ++i) mean[i] += share * own[i];
      }
      gradient = mean.data();
    }
    std::array<float*, kMaxStates> state{};
    for (size_t kind = 0; kind < states; ++kind) state[kind] = state_(kind, block.offset);
    static_cast<void>(update_block(settings, space_.slices()[block.slice].weight_decay,
                                   {&gradient, 1}, block.size, weights_.data() + at, state.data()));
  }
}

}  // namespace starling
