// Predictions as a person or a program wants them. Pure functions but for the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "starling/shape.h"

namespace starling {

struct Predictions {
  std::vector<float> values;  // row by row
  Shape shape;                // of one row
  uint64_t first_sample = 0;  // the number of the first row

  size_t width() const { return static_cast<size_t>(shape.elements()); }
  size_t rows() const { return values.size() / width(); }
};

// Logits turned into probabilities, in place: a softmax over each row, or the sigmoid of each
// value.
void softmax_rows(Predictions& predictions);
void sigmoid_values(Predictions& predictions);

// The `count` largest of a row, the largest first; of equals, the lower index.
std::vector<std::pair<size_t, float>> largest(const Predictions& predictions, size_t row,
                                              size_t count);

// Lines for the terminal: "sample 3: class 9 97.31%, class 7 2.10%", or the values when they are
// not probabilities of classes.
std::string predictions_text(const Predictions& predictions, bool classes, size_t top);

// Every value: "sample,0,1,2".
std::string predictions_csv(const Predictions& predictions);
// A NumPy file of f32, {rows, …shape}.
std::string predictions_npy(const Predictions& predictions);

// Writes .csv or .npy, by the path's ending, whole or not at all. Throws Error.
void write_predictions(const Predictions& predictions, const std::filesystem::path& path);

}  // namespace starling
