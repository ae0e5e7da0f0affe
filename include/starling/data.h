// Data sets: where samples come from, and what is done to them on the way.
//
// A Source is immutable and answers reads of any samples from any number of threads. A Dataset is
// a handle on one, cheap to copy; map, range, split and the others give new data sets whose
// samples are numbered from 0 again. Nothing is read before it is asked for, but for gzipped files,
// which are unpacked when they are opened. Every data set has at least one sample. Files are
// checked when they are opened and must not be changed while a data set stands on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "starling/shape.h"

namespace starling::data {

class Source {
 public:
  virtual ~Source();
  virtual uint64_t size() const = 0;
  virtual Shape feature_shape() const = 0;
  virtual Shape label_shape() const = 0;  // {1} for a class index

  // Writes the samples `ids` one after another, row-major. Thread-safe. Throws Error that names
  // the sample when a value is not finite or there is no such sample.
  virtual void read(std::span<const uint64_t> ids, float* features, float* labels) const = 0;

  // True when reading is about as quick as a copy: lanes then read for themselves, and no
  // thread reads ahead.
  virtual bool cheap() const { return false; }

  // What it is and where it is from, for messages.
  virtual std::string describe() const = 0;
};

// One sample as a map function sees it: both values may be changed in place.
struct Sample {
  uint64_t id;  // its number in the mapped data set
  std::span<float> features;
  std::span<float> label;
};

class Dataset {
 public:
  // Changes the values of a sample. Called from several threads at once.
  using MapFunction = std::function<void(const Sample&)>;
  // Writes new features, of the shape given to map().
  using ReshapeFunction = std::function<void(const Sample&, std::span<float> features)>;

  Dataset() = default;  // no data set: false, and every other method throws Error
  explicit Dataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  explicit operator bool() const { return source_ != nullptr; }

  uint64_t size() const { return source().size(); }
  Shape feature_shape() const { return source().feature_shape(); }
  Shape label_shape() const { return source().label_shape(); }
  void read(std::span<const uint64_t> ids, float* features, float* labels) const {
    source().read(ids, features, labels);
  }
  bool cheap() const { return source().cheap(); }
  std::string describe() const { return source().describe(); }
  const Source& source() const;

  // Passes each sample through `function` whenever it is read; shapes stay.
  Dataset map(MapFunction function) const;
  // The same, with features of another shape.
  Dataset map(Shape feature_shape, ReshapeFunction function) const;

  // `count` samples from `first` on; the first `count`; all but the first `count`. Throws Error
  // when there are not as many, or none would be left.
  Dataset range(uint64_t first, uint64_t count) const;
  Dataset take(uint64_t count) const { return range(0, count); }
  Dataset skip(uint64_t count) const;

  // Two disjoint parts that together are the whole, drawn by `seed`. The second gets
  // `second_fraction` of the samples, rounded; each gets at least one.
  std::pair<Dataset, Dataset> split(double second_fraction, uint64_t seed) const;

  // Reads every sample once, now, and keeps them in memory.
  Dataset cached() const;

 private:
  std::shared_ptr<const Source> source_;
};

struct TrainTest {
  Dataset train, test;
};

struct IdxOptions {
  std::optional<float> scale = {};  // of features; by default 1/255 for bytes, 1 for other types
};

// Two IDX files (as MNIST's), raw or gzipped. Images of bytes {h, w} become {h, w, 1}.
Dataset idx(const std::filesystem::path& features, const std::filesystem::path& labels,
            const IdxOptions& options = {});

struct NpyOptions {
  float scale = 1;  // of features
};

// Two NumPy files, samples along the first axis: f4, f8, u1, i1, i2, i4, i8 or b1 in C order.
Dataset npy(const std::filesystem::path& features, const std::filesystem::path& labels,
            const NpyOptions& options = {});

// Samples one after another, each of the given shape. Throws Error when a value is not finite.
Dataset in_memory(std::vector<float> features, const Shape& feature_shape,
                  std::vector<float> labels, const Shape& label_shape = {1});

struct SyntheticOptions {
  uint64_t samples = 1000;
  Shape features = {32};
  uint32_t classes = 10;
  uint64_t seed = 1;
  float noise = 1;  // its standard deviation; the classes' centres are drawn from [−1, 1)
};

// A classification problem that can be learned: a random centre per class, and uniform noise.
// Classes take turns. Samples are computed when read, each on its own.
Dataset synthetic(const SyntheticOptions& options);

struct SyntheticRegressionOptions {
  uint64_t samples = 1000;
  Shape features = {32};
  uint64_t seed = 1;
  float noise = 0.1f;  // standard deviation of what is added to the label
};

// A linear problem: features are uniform in [−1, 1), the label {1} is a fixed weighted sum of
// them plus noise.
Dataset synthetic_regression(const SyntheticRegressionOptions& options);

// Well-known data sets, looked for in `folder` if one is given, else where their Debian package
// puts them, else in the cache folder. Throws Error that says how to get them.
TrainTest fashion_mnist(const std::filesystem::path& folder = {});
TrainTest mnist(const std::filesystem::path& folder = {});

// The folder under which fetched data sets are kept: ~/.cache/starling unless set. Thread-safe.
std::filesystem::path cache_dir();
void set_cache_dir(const std::filesystem::path& folder);

// What a data set holds, found by reading all of it.
struct Info {
  std::string description;
  uint64_t samples = 0;
  Shape feature_shape, label_shape;
  float feature_min = 0, feature_max = 0;
  double feature_mean = 0;
  float label_min = 0, label_max = 0;
  std::vector<uint64_t> class_counts;  // empty when labels are not classes
};
Info info(const Dataset& dataset);

}  // namespace starling::data
