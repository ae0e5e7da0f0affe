// For tests of training: a folder that goes away, small models and data, and histories without the
// columns that depend on the clock.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "error_of.h"
#include "starling/starling.h"

namespace starling {

class FitTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::replace(name.begin(), name.end(), '/', '_');
    folder_ = std::filesystem::temp_directory_path() /
              ("starling_fit_" + std::to_string(::getpid()) + "_" + name);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string content(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

inline data::Dataset small_data(uint64_t samples, uint64_t seed = 1, float noise = 1) {
  return data::synthetic(
      {.samples = samples, .features = {6, 6, 1}, .classes = 4, .seed = seed, .noise = noise});
}

inline Model small_mlp() { return Sequential({6, 6, 1}, {flatten(), dense(16, relu), dense(4)}); }

// Everything that has state of its own: running statistics, random masks, packed weights.
inline Model small_cnn() {
  return Sequential({6, 6, 1},
                    {conv2d(8, 3, linear, {.bias = false}), batch_norm(), relu, max_pool2d(2),
                     dropout(0.2f), flatten(), dense(12, tanh), dropout(0.3f), dense(4)});
}

// The same history without what depends on the clock.
inline History without_times(const History& history) {
  History result;
  for (EpochRecord record : history.epochs()) {
    record.seconds = record.train_seconds = 0;
    record.bytes_sent = 0;  // those since a resume
    std::erase_if(record.values, [](const auto& value) { return value.first == "samples_per_s"; });
    result.append(std::move(record));
  }
  return result;
}

}  // namespace starling
