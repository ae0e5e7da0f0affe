// Problems made of counter-based random numbers: any sample is computed on its own, so that a data
// set of any size takes no memory and every worker sees the same one. Noise is uniform, not normal:
// no call of the mathematics library, whose bits differ between versions.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "data/array.h"
#include "starling/data.h"
#include "starling/error.h"

namespace starling::data {
namespace {

// What a stream of numbers is for, within Draw::kSynthetic.
enum Stream : uint32_t { kCentres = 0, kFeatures = 1, kLabels = 2 };

// A uniform number in [−1, 1) times this has the standard deviation 1.
constexpr float kUnitDeviation = 1.7320508f;

constexpr int64_t kMaxFeatures = int64_t{1} << 28;

// Numbers uniform in [−1, 1), four to a block of the generator.
void fill_uniform(const RandomStream& stream, std::span<float> out) {
  for (size_t i = 0; i < out.size(); i += 4) {
    const RandomBlock block = stream.block(static_cast<uint32_t>(i / 4));
    for (size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      out[i + j] = static_cast<float>(block[j] >> 8) * 0x1p-23f - 1.0f;
    }
  }
}

void check_options(uint64_t samples, const Shape& features, float noise) {
  // Centres and weights are kept in memory: more of them is surely a mistake.
  if (samples == 0 || features.elements() > kMaxFeatures || !(noise >= 0 && std::isfinite(noise))) {
    throw input_error(fmt::format("a synthetic data set cannot have {} samples of {} with noise {}",
                                  samples, features.to_string(), noise),
                      "give at least one sample, at most 2^28 features, and a noise of 0 or more");
  }
}

class ClassSource final : public Source {
 public:
  explicit ClassSource(const SyntheticOptions& options)
      : options_(options), features_(static_cast<size_t>(options.features.elements())) {
    centres_.resize(options.classes * features_);
    for (uint32_t i = 0; i < options.classes; ++i) {
      fill_uniform(RandomStream(options.seed, Draw::kSynthetic, kCentres, i),
                   std::span(centres_).subspan(i * features_, features_));
    }
  }

  uint64_t size() const override { return options_.samples; }
  Shape feature_shape() const override { return options_.features; }
  Shape label_shape() const override { return {1}; }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    check_ids(ids, size(), *this);
    const float amplitude = options_.noise * kUnitDeviation;
    for (const uint64_t id : ids) {
      const uint64_t label = id % options_.classes;
      const float* centre = centres_.data() + label * features_;
      fill_uniform(RandomStream(options_.seed, Draw::kSynthetic, kFeatures, id),
                   {features, features_});
      for (size_t i = 0; i < features_; ++i) features[i] = centre[i] + amplitude * features[i];
      features += features_;
      *labels++ = static_cast<float>(label);
    }
  }

  std::string describe() const override {
    return fmt::format("synthetic data ({} samples of {}, {} classes)", options_.samples,
                       options_.features.to_string(), options_.classes);
  }

 private:
  SyntheticOptions options_;
  size_t features_;
  std::vector<float> centres_;  // classes × features
};

class LinearSource final : public Source {
 public:
  explicit LinearSource(const SyntheticRegressionOptions& options)
      : options_(options), weights_(static_cast<size_t>(options.features.elements())) {
    fill_uniform(RandomStream(options.seed, Draw::kSynthetic, kCentres), weights_);
    // Uniform times uniform has the variance 1/9: so that the label's is about 1.
    const float scale = 3.0f / std::sqrt(static_cast<float>(weights_.size()));
    for (float& weight : weights_) weight *= scale;
  }

  uint64_t size() const override { return options_.samples; }
  Shape feature_shape() const override { return options_.features; }
  Shape label_shape() const override { return {1}; }

  void read(std::span<const uint64_t> ids, float* features, float* labels) const override {
    check_ids(ids, size(), *this);
    for (const uint64_t id : ids) {
      fill_uniform(RandomStream(options_.seed, Draw::kSynthetic, kFeatures, id),
                   {features, weights_.size()});
      double sum = 0;
      for (size_t i = 0; i < weights_.size(); ++i) sum += double{weights_[i]} * features[i];
      float noise;
      fill_uniform(RandomStream(options_.seed, Draw::kSynthetic, kLabels, id), {&noise, 1});
      *labels++ = static_cast<float>(sum) + options_.noise * kUnitDeviation * noise;
      features += weights_.size();
    }
  }

  std::string describe() const override {
    return fmt::format("synthetic regression ({} samples of {})", options_.samples,
                       options_.features.to_string());
  }

 private:
  SyntheticRegressionOptions options_;
  std::vector<float> weights_;
};

}  // namespace

Dataset synthetic(const SyntheticOptions& options) {
  check_options(options.samples, options.features, options.noise);
  if (options.classes == 0 || options.features.elements() > kMaxFeatures / options.classes) {
    throw input_error(fmt::format("a synthetic data set cannot have {} classes with features of {}",
                                  options.classes, options.features.to_string()),
                      "give at least one class, and at most 2^28 features times classes");
  }
  return Dataset(std::make_shared<ClassSource>(options));
}

Dataset synthetic_regression(const SyntheticRegressionOptions& options) {
  check_options(options.samples, options.features, options.noise);
  return Dataset(std::make_shared<LinearSource>(options));
}

}  // namespace starling::data
