#include "data/array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/mapped_file.h"
#include "starling/error.h"

namespace starling::data {
namespace {

// Mapped files up to this size are expected to stay in memory, so that reading is a copy. Larger
// ones may wait for the disk: a thread reads them ahead.
constexpr uint64_t kCheapBytes = uint64_t{1} << 30;

class ArraySource final : public Source {
 public:
  ArraySource(Array features, Array labels, float scale)
      : features_(std::move(features)), labels_(std::move(labels)), scale_(scale) {}

  uint64_t size() const override { return features_.layout.samples; }
  Shape feature_shape() const override { return features_.layout.sample; }
  Shape label_shape() const override { return labels_.layout.sample; }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    check_ids(ids, size(), *this);
    for (const uint64_t id : ids) {
      features = read_one(features_, id, scale_, "feature", features);
      labels = read_one(labels_, id, 1, "label", labels);
    }
  }

  bool cheap() const override {
    return mapped_bytes(features_) + mapped_bytes(labels_) <= kCheapBytes;
  }

  std::string describe() const override {
    return fmt::format("{} ({} {} of {}) with labels {}", features_.file.name, size(),
                       size() == 1 ? "sample" : "samples", feature_shape().to_string(),
                       labels_.file.name);
  }

 private:
  static uint64_t mapped_bytes(const Array& array) {
    return array.mapped ? array.file.bytes.size() : 0;
  }

  // Returns where the next sample goes.
  float* read_one(const Array& array, uint64_t id, float scale, const char* what,
                  float* out) const {
    const ArrayLayout& layout = array.layout;
    const size_t count = static_cast<size_t>(layout.sample.elements());
    to_float(layout.type, layout.big_endian, array.sample(id), count, scale, out);
    // Integers are finite as they are.
    if (layout.type == ElementType::kF32 || layout.type == ElementType::kF64) {
      check_finite({out, count}, id, what, *this);
    }
    return out + count;
  }

  Array features_;
  Array labels_;
  float scale_;
};

}  // namespace

FileBytes map_bytes(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  if (file->bytes().size() <= kCheapBytes) file->read_ahead();
  const std::span<const std::byte> bytes = file->bytes();
  return {path.string(), bytes, std::move(file)};
}

uint64_t ArrayLayout::sample_bytes() const {
  return static_cast<uint64_t>(sample.elements()) * element_bytes(type);
}

uint64_t ArrayLayout::file_bytes() const { return offset + samples * sample_bytes(); }

ArrayLayout make_layout(const std::string& name, ElementType type, bool big_endian,
                        std::span<const uint64_t> extents, uint64_t offset) {
  constexpr size_t kMaxAxes = Shape::kMaxRank + 1;
  if (extents.empty() || extents.size() > kMaxAxes) {
    throw input_error(fmt::format("{}: the array has {} axes", name, extents.size()),
                      fmt::format("samples lie along the first axis, and at most {} axes follow it",
                                  kMaxAxes - 1));
  }
  // Far beyond any file, and so far from 2^64 that sums with an offset can't wrap either.
  constexpr uint64_t kMaxBytes = uint64_t{1} << 48;
  uint64_t bytes = element_bytes(type);
  for (const uint64_t extent : extents) {
    if (extent == 0 || extent > kMaxBytes / bytes) {
      throw input_error(fmt::format("{}: the header declares an array of {} {}", name,
                                    fmt::join(extents, "×"), element_name(type)),
                        extent == 0
                            ? "a data set has at least one sample, and no axis is empty"
                            : "no file is as large as that: it is damaged, make or fetch it again");
    }
    bytes *= extent;
  }
  std::array<int64_t, kMaxAxes> sample{1};
  std::copy(extents.begin() + 1, extents.end(), sample.begin());
  const size_t axes = std::max<size_t>(extents.size() - 1, 1);
  const Shape shape(std::span<const int64_t>(sample.data(), axes));
  return {type, big_endian, extents[0], shape, offset};
}

void check_length(const std::string& name, const ArrayLayout& layout, uint64_t file_bytes) {
  if (file_bytes == layout.file_bytes()) return;
  throw input_error(
      fmt::format("{}: the header declares {} samples of {} ({}), {} bytes in all, but there are "
                  "{} bytes",
                  name, layout.samples, layout.sample.to_string(), element_name(layout.type),
                  layout.file_bytes(), file_bytes),
      file_bytes < layout.file_bytes() ? "the file was cut short: make or fetch it again"
                                       : "the file is damaged or holds something else besides");
}

Dataset join(Array features, Array labels, float scale) {
  if (features.layout.samples != labels.layout.samples) {
    throw input_error(fmt::format("{} has {} samples, but {} has {} labels", features.file.name,
                                  features.layout.samples, labels.file.name, labels.layout.samples),
                      "give two files that belong together");
  }
  return Dataset(std::make_shared<ArraySource>(std::move(features), std::move(labels), scale));
}

void check_ids(std::span<const uint64_t> ids, uint64_t size, const Source& source) {
  for (const uint64_t id : ids) {
    if (id >= size) {
      throw input_error(fmt::format("there is no sample {} in {}", id, source.describe()),
                        fmt::format("samples are numbered 0 to {}", size - 1));
    }
  }
}

void check_finite(std::span<const float> values, uint64_t id, const char* what,
                  const Source& source) {
  const size_t bad = first_non_finite(values);
  if (bad == values.size()) return;
  throw input_error(fmt::format("sample {} of {} has the value {} as {} {}", id, source.describe(),
                                values[bad], what, bad),
                    "values must be finite in 32-bit floats: remove or replace such samples");
}

}  // namespace starling::data
