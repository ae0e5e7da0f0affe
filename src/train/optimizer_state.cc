#include "train/optimizer_state.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace starling {

OptimizerState::OptimizerState(size_t kinds, std::span<const Span> runs) : kinds_(kinds) {
  for (const Span& floats : runs) {
    std::vector<Buffer<float>> arrays;
    for (size_t kind = 0; kind < kinds; ++kind) arrays.emplace_back(floats.size());
    add_run(floats, std::move(arrays));
  }
}

void OptimizerState::add_run(Span floats, std::vector<Buffer<float>> arrays) {
  runs_.push_back({floats, std::move(arrays)});
}

size_t OptimizerState::bytes() const {
  size_t floats = 0;
  for (const Run& run : runs_) floats += run.floats.size();
  return kinds_ * floats * sizeof(float);
}

const float* OptimizerState::at(size_t kind, size_t offset) const {
  for (const Run& run : runs_) {
    if (offset >= run.floats.begin && offset < run.floats.end)
      return run.arrays[kind].data() + (offset - run.floats.begin);
  }
  throw std::logic_error("optimizer state of another worker was asked for");
}

float* OptimizerState::at(size_t kind, size_t offset) {
  return const_cast<float*>(std::as_const(*this).at(kind, offset));
}

void OptimizerState::take(size_t kind, size_t offset, std::span<const float> values) {
  for (Run& run : runs_) {
    const size_t begin = std::max(offset, run.floats.begin);
    const size_t end = std::min(offset + values.size(), run.floats.end);
    if (begin >= end) continue;
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(begin - offset), end - begin,
                run.arrays[kind].data() + (begin - run.floats.begin));
  }
}

}  // namespace starling
