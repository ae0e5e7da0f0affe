#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/array.h"
#include "starling/data.h"
#include "starling/error.h"

namespace starling::data {
namespace {

class MemorySource final : public Source {
 public:
  MemorySource(std::vector<float> features, const Shape& feature_shape, std::vector<float> labels,
               const Shape& label_shape)
      : features_(std::move(features)),
        labels_(std::move(labels)),
        feature_shape_(feature_shape),
        label_shape_(label_shape),
        feature_step_(static_cast<size_t>(feature_shape.elements())),
        label_step_(static_cast<size_t>(label_shape.elements())) {}

  uint64_t size() const override { return labels_.size() / label_step_; }
  Shape feature_shape() const override { return feature_shape_; }
  Shape label_shape() const override { return label_shape_; }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    check_ids(ids, size(), *this);
    for (const uint64_t id : ids) {
      features = std::copy_n(features_.data() + id * feature_step_, feature_step_, features);
      labels = std::copy_n(labels_.data() + id * label_step_, label_step_, labels);
    }
  }

  bool cheap() const override { return true; }

  std::string describe() const override {
    return fmt::format("{} samples of {} in memory", size(), feature_shape_.to_string());
  }

  // Done once, so that reads are copies.
  void check_values() const {
    check(features_, feature_step_, "feature");
    check(labels_, label_step_, "label");
  }

 private:
  void check(std::span<const float> values, size_t step, const char* what) const {
    const size_t id = first_non_finite(values) / step;
    if (id < size()) check_finite(values.subspan(id * step, step), id, what, *this);
  }

  std::vector<float> features_;
  std::vector<float> labels_;
  Shape feature_shape_, label_shape_;
  size_t feature_step_, label_step_;
};

}  // namespace

Dataset in_memory(std::vector<float> features, const Shape& feature_shape,
                  std::vector<float> labels, const Shape& label_shape) {
  const uint64_t feature_step = static_cast<uint64_t>(feature_shape.elements());
  const uint64_t label_step = static_cast<uint64_t>(label_shape.elements());
  const uint64_t samples = features.size() / feature_step;
  if (samples == 0 || features.size() % feature_step != 0 || labels.size() % label_step != 0 ||
      labels.size() / label_step != samples) {
    throw input_error(
        fmt::format("{} features in samples of {} and {} labels in samples of {} don't make a "
                    "data set",
                    features.size(), feature_shape.to_string(), labels.size(),
                    label_shape.to_string()),
        "give as many whole labels as there are whole samples, and at least one");
  }
  auto source = std::make_shared<MemorySource>(std::move(features), feature_shape,
                                               std::move(labels), label_shape);
  source->check_values();
  return Dataset(std::move(source));
}

}  // namespace starling::data
