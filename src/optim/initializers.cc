#include "optim/initializers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "starling/error.h"

namespace starling {
namespace {

void fill_uniform(const RandomStream& stream, float limit, size_t n, float* weights) {
  for (size_t i = 0; i < n; i += 4) {
    // The stream's uniforms, four at a time: 2u − 1 is exact.
    const RandomBlock bits = stream.block(static_cast<uint32_t>(i / 4));
    for (size_t k = 0; k < 4 && i + k < n; ++k) {
      weights[i + k] = (static_cast<float>(bits[k] >> 8) * 0x1p-23f - 1) * limit;
    }
  }
}

void fill_normal(const RandomStream& stream, float deviation, size_t n, float* weights) {
  for (size_t i = 0; i < n; ++i) weights[i] = stream.normal(i) * deviation;
}

double dot(const double* a, const double* b, size_t n) {
  std::array<double, 4> sums{};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (size_t k = 0; k < 4; ++k) sums[k] += a[i + k] * b[i + k];
  }
  for (; i < n; ++i) sums[0] += a[i] * b[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Gram–Schmidt in f64 on random normal vectors: `count` of them, of `length` ≥ count. Each is
// made orthogonal twice, since once loses digits when little of the vector is left.
std::vector<double> orthonormal_vectors(const RandomStream& stream, size_t count, size_t length) {
  std::vector<double> vectors(count * length);
  for (size_t i = 0; i < vectors.size(); ++i) vectors[i] = stream.normal(i);
  for (size_t k = 0; k < count; ++k) {
    double* vector = vectors.data() + k * length;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t j = 0; j < k; ++j) {
        const double* other = vectors.data() + j * length;
        const double part = dot(vector, other, length);
        for (size_t i = 0; i < length; ++i) vector[i] -= part * other[i];
      }
      const double scale = 1 / std::sqrt(dot(vector, vector, length));
      for (size_t i = 0; i < length; ++i) vector[i] *= scale;
    }
  }
  return vectors;
}

void fill_orthogonal(const Slice& slice, const RandomStream& stream, float* weights) {
  if (slice.shape.rank() < 2) {
    throw input_error(fmt::format("\"{}\" ({}) can't be initialised as orthogonal", slice.name,
                                  slice.shape.to_string()),
                      "orthogonal needs at least two axes; use another initializer");
  }
  const size_t rows = static_cast<size_t>(slice.shape[0]), columns = slice.size / rows;
  const size_t count = std::min(rows, columns), length = std::max(rows, columns);
  const std::vector<double> vectors = orthonormal_vectors(stream, count, length);
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      const size_t at = rows <= columns ? r * length + c : c * length + r;
      weights[r * columns + c] = static_cast<float>(vectors[at]);
    }
  }
}

double fan_in(const Slice& slice) { return static_cast<double>(slice.fan_in); }
double both_fans(const Slice& slice) { return fan_in(slice) + static_cast<double>(slice.fan_out); }

// What an initializer draws: a distribution, and its half-width or deviation for a slice.
enum class Form { kConstant, kUniform, kNormal, kOrthogonal };

struct Initializer {
  std::string_view name;
  Form form;
  double (*scale)(const Slice& slice);
};

constexpr std::array kInitializers = {
    Initializer{"zeros", Form::kConstant, [](const Slice&) { return 0.0; }},
    Initializer{"ones", Form::kConstant, [](const Slice&) { return 1.0; }},
    Initializer{"glorot_uniform", Form::kUniform,
                [](const Slice& s) { return std::sqrt(6 / both_fans(s)); }},
    Initializer{"glorot_normal", Form::kNormal,
                [](const Slice& s) { return std::sqrt(2 / both_fans(s)); }},
    Initializer{"he_uniform", Form::kUniform,
                [](const Slice& s) { return std::sqrt(6 / fan_in(s)); }},
    Initializer{"he_normal", Form::kNormal,
                [](const Slice& s) { return std::sqrt(2 / fan_in(s)); }},
    Initializer{"lecun_uniform", Form::kUniform,
                [](const Slice& s) { return std::sqrt(3 / fan_in(s)); }},
    Initializer{"lecun_normal", Form::kNormal,
                [](const Slice& s) { return std::sqrt(1 / fan_in(s)); }},
    Initializer{"uniform", Form::kUniform, [](const Slice&) { return 0.05; }},
    Initializer{"normal", Form::kNormal, [](const Slice&) { return 0.05; }},
    Initializer{"orthogonal", Form::kOrthogonal, [](const Slice&) { return 1.0; }},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kInitializers.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kInitializers[i].name;
  return names;
}();

const Initializer& find_initializer(const Slice& slice) {
  for (const Initializer& initializer : kInitializers) {
    if (initializer.name == slice.initializer) return initializer;
  }
  throw input_error(fmt::format("\"{}\", of the parameter \"{}\", is not an initializer",
                                slice.initializer, slice.name),
                    fmt::format("use one of: {}", fmt::join(kNames, ", ")));
}

}  // namespace

std::span<const std::string_view> initializer_names() { return kNames; }

void initialize(const Slice& slice, uint64_t seed, float* weights) {
  const Initializer& initializer = find_initializer(slice);
  const RandomStream stream(seed, Draw::kInitialize, 0, hash_name(slice.name));
  const float scale = static_cast<float>(initializer.scale(slice));
  switch (initializer.form) {
    case Form::kConstant:
      std::fill_n(weights, slice.size, scale);
      break;
    case Form::kUniform:
      fill_uniform(stream, scale, slice.size, weights);
      break;
    case Form::kNormal:
      fill_normal(stream, scale, slice.size, weights);
      break;
    case Form::kOrthogonal:
      fill_orthogonal(slice, stream, weights);
      break;
  }
}

}  // namespace starling
