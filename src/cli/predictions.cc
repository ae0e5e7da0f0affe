#include "cli/predictions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "base/atomic_file.h"
#include "starling/error.h"

namespace starling {

void softmax_rows(Predictions& predictions) {
  const size_t width = predictions.width();
  for (size_t row = 0; row < predictions.rows(); ++row) {
    const std::span<float> values(predictions.values.data() + row * width, width);
    const double top = *std::max_element(values.begin(), values.end());
    double sum = 0;
    for (const float value : values) sum += std::exp(value - top);
    for (float& value : values) value = static_cast<float>(std::exp(value - top) / sum);
  }
}

void sigmoid_values(Predictions& predictions) {
  for (float& value : predictions.values) {
    value = static_cast<float>(1 / (1 + std::exp(-double{value})));
  }
}

std::vector<std::pair<size_t, float>> largest(const Predictions& predictions, size_t row,
                                              size_t count) {
  const size_t width = predictions.width();
  const float* values = predictions.values.data() + row * width;
  std::vector<size_t> order(width);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  std::vector<std::pair<size_t, float>> result;
  for (size_t i = 0; i < std::min(count, width); ++i)
    result.emplace_back(order[i], values[order[i]]);
  return result;
}

std::string predictions_text(const Predictions& predictions, bool classes, size_t top) {
  std::string text;
  for (size_t row = 0; row < predictions.rows(); ++row) {
    std::vector<std::string> parts;
    if (classes) {
      for (const auto& [index, value] : largest(predictions, row, top)) {
        parts.push_back(fmt::format("class {} {:.2f}%", index, 100 * value));
      }
    } else {
      const size_t width = predictions.width();
      for (size_t i = 0; i < width; ++i)
        parts.push_back(fmt::format("{}", predictions.values[row * width + i]));
    }
    text += fmt::format("sample {}: {}\n", predictions.first_sample + row, fmt::join(parts, ", "));
  }
  return text;
}

std::string predictions_csv(const Predictions& predictions) {
  const size_t width = predictions.width();
  std::string text = "sample";
  for (size_t i = 0; i < width; ++i) text += fmt::format(",{}", i);
  text += "\n";
  for (size_t row = 0; row < predictions.rows(); ++row) {
    text += fmt::format("{}", predictions.first_sample + row);
    for (size_t i = 0; i < width; ++i)
      text += fmt::format(",{}", predictions.values[row * width + i]);
    text += "\n";
  }
  return text;
}

std::string predictions_npy(const Predictions& predictions) {
  static_assert(std::endian::native == std::endian::little, "values are written as they lie");
  std::string extents = fmt::format("{}", predictions.rows());
  for (int i = 0; i < predictions.shape.rank(); ++i)
    extents += fmt::format(", {}", predictions.shape[i]);
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", extents);
  // Magic, version and length take 10 bytes; numbers begin at a multiple of 64, after a newline.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00", 8);
  file += {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  file += header;
  file.append(reinterpret_cast<const char*>(predictions.values.data()),
              predictions.values.size() * sizeof(float));
  return file;
}

void write_predictions(const Predictions& predictions, const std::filesystem::path& path) {
  const std::string ending = path.extension().string();
  if (ending != ".csv" && ending != ".npy") {
    throw input_error(
        fmt::format("--output {}: the kind of file is told by its ending, which is not known",
                    path.string()),
        "use .csv or .npy");
  }
  write_file_atomically(
      path, ending == ".csv" ? predictions_csv(predictions) : predictions_npy(predictions));
}

}  // namespace starling
