#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "starling/data.h"

namespace starling::data {
namespace {

// Whole numbers from 0 to below this are taken for classes.
constexpr float kMaxClasses = 65536;

// Counts labels as long as they look like classes.
class ClassCounter {
 public:
  explicit ClassCounter(bool possible) : possible_(possible) {}

  void add(float label) {
    possible_ = possible_ && label >= 0 && label < kMaxClasses && label == std::floor(label);
    if (!possible_) return;
    const size_t index = static_cast<size_t>(label);
    if (index >= counts_.size()) counts_.resize(index + 1);
    ++counts_[index];
  }

  std::vector<uint64_t> counts() && {
    return possible_ ? std::move(counts_) : std::vector<uint64_t>();
  }

 private:
  bool possible_;
  std::vector<uint64_t> counts_;
};

}  // namespace

Info info(const Dataset& dataset) {
  Info result;
  result.description = dataset.describe();
  result.samples = dataset.size();
  result.feature_shape = dataset.feature_shape();
  result.label_shape = dataset.label_shape();
  const size_t feature_step = static_cast<size_t>(result.feature_shape.elements());
  const size_t label_step = static_cast<size_t>(result.label_shape.elements());
  // About 1 MiB of features at a time.
  const size_t batch = std::clamp((size_t{1} << 18) / feature_step, size_t{1}, size_t{1024});
  std::vector<float> features(batch * feature_step), labels(batch * label_step);
  std::vector<uint64_t> ids(batch);

  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  result.feature_min = result.label_min = kInfinity;
  result.feature_max = result.label_max = -kInfinity;
  double sum = 0;
  ClassCounter classes(label_step == 1);
  for (uint64_t first = 0; first < result.samples; first += batch) {
    const size_t count = static_cast<size_t>(std::min<uint64_t>(batch, result.samples - first));
    std::iota(ids.begin(), ids.end(), first);
    dataset.read({ids.data(), count}, features.data(), labels.data());
    for (const float value : std::span(features).first(count * feature_step)) {
      result.feature_min = std::min(result.feature_min, value);
      result.feature_max = std::max(result.feature_max, value);
      sum += value;
    }
    for (const float label : std::span(labels).first(count * label_step)) {
      result.label_min = std::min(result.label_min, label);
      result.label_max = std::max(result.label_max, label);
      classes.add(label);
    }
  }
  result.feature_mean =
      sum / (static_cast<double>(result.samples) * static_cast<double>(feature_step));
  result.class_counts = std::move(classes).counts();
  return result;
}

}  // namespace starling::data
