// The numbers that both sides of a comparison start from, so that they do the same work and can be
// checked against each other: samples, labels and weights as pure functions of an index. Plain
// C++17, because the peers include it too.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bench {

// Uniform in [−1, 1): a hash (SplitMix64's finaliser) of the stream and the index.
inline float uniform(uint64_t stream, uint64_t index) {
  uint64_t z = (stream << 40) + index + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(z >> 40) * (2.0f / 16777216.0f) - 1.0f;
}

// What a model takes and gives.
struct Problem {
  size_t features = 0;  // floats of a sample
  int classes = 10;
  bool adam = true;  // else SGD with momentum
};

// False for a name that is not known.
inline bool find_problem(const std::string& model, Problem& problem) {
  if (model == "cnn")
    problem = {28 * 28, 10, true};
  else if (model == "mlp")
    problem = {784, 10, true};
  else if (model == "large")
    problem = {1024, 10, true};
  else if (model == "small")
    problem = {16, 4, true};
  else if (model == "residual")
    problem = {28 * 28, 10, false};
  else
    return false;
  return true;
}

// Pixels: in [0, 1).
inline std::vector<float> make_features(size_t samples, const Problem& problem) {
  std::vector<float> values(samples * problem.features);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 0.5f + 0.5f * uniform(1, i);
  return values;
}

inline std::vector<float> make_labels(size_t samples, const Problem& problem) {
  std::vector<float> values(samples);
  const float classes = static_cast<float>(problem.classes);
  for (size_t i = 0; i < samples; ++i)
    values[i] = std::floor((0.5f + 0.5f * uniform(2, i)) * classes);
  return values;
}

// Weights of the `index`-th product or convolution of a model, in the order in which its layers
// are built (a shortcut before what it goes around): row-major, one row of `fan_in` per output.
inline void fill_weights(size_t index, size_t fan_in, float* weights, size_t count) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(fan_in));
  for (size_t i = 0; i < count; ++i) weights[i] = scale * uniform(16 + index, i);
}

}  // namespace bench
