// Dataset and its decorators: each is a Source that reads from another one. Reads allocate nothing
// once their scratch memory has grown, because the loader's thread calls them for every batch.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "base/random.h"
#include "data/array.h"
#include "starling/data.h"
#include "starling/error.h"

namespace starling::data {
namespace {

size_t elements(const Shape& shape) { return static_cast<size_t>(shape.elements()); }

// Reads through a translation of sample numbers, `Number(id)`, from a larger data set.
template <typename Number>
class SubsetSource final : public Source {
 public:
  SubsetSource(Dataset from, uint64_t size, Number number, std::string name)
      : from_(std::move(from)), size_(size), number_(number), name_(std::move(name)) {}

  uint64_t size() const override { return size_; }
  Shape feature_shape() const override { return from_.feature_shape(); }
  Shape label_shape() const override { return from_.label_shape(); }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    check_ids(ids, size_, *this);
    const size_t feature_step = elements(feature_shape()), label_step = elements(label_shape());
    std::array<uint64_t, 64> numbers;
    while (!ids.empty()) {
      const size_t count = std::min(ids.size(), numbers.size());
      std::transform(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), numbers.begin(),
                     number_);
      from_.read({numbers.data(), count}, features, labels);
      features += count * feature_step;
      labels += count * label_step;
      ids = ids.subspan(count);
    }
  }

  bool cheap() const override { return from_.cheap(); }
  std::string describe() const override { return name_ + " of " + from_.describe(); }

 private:
  Dataset from_;
  uint64_t size_;
  Number number_;
  std::string name_;
};

struct RangeNumber {
  uint64_t first;
  uint64_t operator()(uint64_t id) const { return first + id; }
};

struct SplitNumber {
  Permutation permutation;
  uint64_t first;
  uint64_t operator()(uint64_t id) const { return permutation(first + id); }
};

template <typename Number>
Dataset subset(const Dataset& from, uint64_t size, Number number, std::string name) {
  return Dataset(std::make_shared<SubsetSource<Number>>(from, size, number, std::move(name)));
}

class MapSource final : public Source {
 public:
  MapSource(Dataset from, Dataset::MapFunction function)
      : from_(std::move(from)), function_(std::move(function)) {}

  uint64_t size() const override { return from_.size(); }
  Shape feature_shape() const override { return from_.feature_shape(); }
  Shape label_shape() const override { return from_.label_shape(); }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    from_.read(ids, features, labels);
    const size_t feature_step = elements(feature_shape()), label_step = elements(label_shape());
    for (const uint64_t id : ids) {
      const Sample sample{id, {features, feature_step}, {labels, label_step}};
      function_(sample);
      check_finite(sample.features, id, "feature", *this);
      check_finite(sample.label, id, "label", *this);
      features += feature_step;
      labels += label_step;
    }
  }

  std::string describe() const override { return "map of " + from_.describe(); }

 private:
  Dataset from_;
  Dataset::MapFunction function_;
};

// Buffers that reads borrow: as many as there are reads at once, kept for the next ones. A
// thread-local buffer would not do, because data sets are mapped inside mapped ones.
class ScratchPool {
 public:
  std::vector<float> take(size_t size) const {
    std::vector<float> buffer;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        buffer = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (buffer.size() < size) buffer.resize(size);
    return buffer;
  }

  void give(std::vector<float> buffer) const {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(buffer));
  }

 private:
  mutable std::mutex mutex_;
  mutable std::vector<std::vector<float>> free_;
};

class ReshapeSource final : public Source {
 public:
  ReshapeSource(Dataset from, const Shape& shape, Dataset::ReshapeFunction function)
      : from_(std::move(from)), shape_(shape), function_(std::move(function)) {}

  uint64_t size() const override { return from_.size(); }
  Shape feature_shape() const override { return shape_; }
  Shape label_shape() const override { return from_.label_shape(); }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    const size_t old_step = elements(from_.feature_shape()), new_step = elements(shape_);
    const size_t label_step = elements(label_shape());
    std::vector<float> scratch = scratch_.take(ids.size() * old_step);
    from_.read(ids, scratch.data(), labels);
    float* old_features = scratch.data();
    for (const uint64_t id : ids) {
      const Sample sample{id, {old_features, old_step}, {labels, label_step}};
      const std::span<float> result(features, new_step);
      function_(sample, result);
      check_finite(result, id, "feature", *this);
      check_finite(sample.label, id, "label", *this);
      old_features += old_step;
      features += new_step;
      labels += label_step;
    }
    scratch_.give(std::move(scratch));
  }

  std::string describe() const override {
    return fmt::format("map to {} of {}", shape_.to_string(), from_.describe());
  }

 private:
  Dataset from_;
  Shape shape_;
  Dataset::ReshapeFunction function_;
  ScratchPool scratch_;
};

}  // namespace

Source::~Source() = default;

const Source& Dataset::source() const {
  if (source_ == nullptr) {
    throw input_error("a data set is used that was never given",
                      "make it with starling::data::idx, npy, in_memory or another maker");
  }
  return *source_;
}

Dataset Dataset::map(MapFunction function) const {
  source();
  return Dataset(std::make_shared<MapSource>(*this, std::move(function)));
}

Dataset Dataset::map(Shape feature_shape, ReshapeFunction function) const {
  source();
  return Dataset(std::make_shared<ReshapeSource>(*this, feature_shape, std::move(function)));
}

Dataset Dataset::range(uint64_t first, uint64_t count) const {
  if (count == 0 || first > size() || count > size() - first) {
    throw input_error(fmt::format("{} samples from number {} on were asked for, but {} has {}",
                                  count, first, describe(), size()),
                      "ask for at least one sample and not for more than there are");
  }
  const std::string name = count == 1 ? fmt::format("sample {}", first)
                                      : fmt::format("samples {} to {}", first, first + count - 1);
  return subset(*this, count, RangeNumber{first}, name);
}

Dataset Dataset::skip(uint64_t count) const {
  return range(count, size() - std::min(count, size()));
}

std::pair<Dataset, Dataset> Dataset::split(double second_fraction, uint64_t seed) const {
  // Written so that a fraction that is not a number is refused too.
  if (!(second_fraction > 0 && second_fraction < 1) || size() < 2) {
    throw input_error(fmt::format("a data set of {} cannot be split with the fraction {}", size(),
                                  second_fraction),
                      "the fraction lies between 0 and 1, and there are at least two samples");
  }
  const double wanted = std::round(second_fraction * static_cast<double>(size()));
  const uint64_t second =
      std::clamp(static_cast<uint64_t>(wanted), uint64_t{1}, size() - uint64_t{1});
  const uint64_t first = size() - second;
  // The key is drawn for this purpose: the epochs' shuffles with the same seed are others.
  const RandomBlock draw = RandomStream(seed, Draw::kSplit).block(0);
  const Permutation permutation(size(), uint64_t{draw[0]} << 32 | draw[1], 0);
  return {subset(*this, first, SplitNumber{permutation, 0}, "the first part of a split"),
          subset(*this, second, SplitNumber{permutation, first}, "the second part of a split")};
}

Dataset Dataset::cached() const {
  const size_t count = static_cast<size_t>(size());
  const size_t feature_step = elements(feature_shape()), label_step = elements(label_shape());
  std::vector<float> features(count * feature_step), labels(count * label_step);
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  read(ids, features.data(), labels.data());
  return in_memory(std::move(features), feature_shape(), std::move(labels), label_shape());
}

}  // namespace starling::data
