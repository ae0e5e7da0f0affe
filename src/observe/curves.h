// The curves of a run as one self-contained SVG: losses on the left, accuracies (when there are
// any) on the right, epochs along both. It has its own light background, so that it looks the same
// on light and dark pages, and no scripts. Pure functions but for the file.
#pragma once

#include <filesystem>
#include <string>

#include "starling/history.h"

namespace starling {

struct CurvesOptions {
  std::string title;     // the name of the run
  std::string subtitle;  // what a reader wants to know besides; may be empty
};

// Every column whose name ends in "loss" or "accuracy" is a series; numbers that are not finite
// leave a gap in it.
std::string draw_curves(const History& history, const CurvesOptions& options = {});

// Writes the file whole or not at all; throws Error.
void write_curves(const History& history, const std::filesystem::path& path,
                  const CurvesOptions& options = {});

}  // namespace starling
