// What the tests of data sets share: a folder that goes away, and tiny files written into it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "error_of.h"
#include "starling/data.h"
#include "starling/error.h"

namespace starling::data {

class FolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("starling_" + std::to_string(::getpid()) + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }

  std::filesystem::path folder_;
};

// `value` as big-endian bytes.
template <typename T>
std::string big_endian(T value) {
  std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
  return {bytes.rbegin(), bytes.rend()};
}

template <typename T>
std::string little_endian(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

inline std::string idx_header(uint8_t type, const std::vector<uint32_t>& extents) {
  std::string bytes = {'\0', '\0', static_cast<char>(type), static_cast<char>(extents.size())};
  for (const uint32_t extent : extents) bytes += big_endian(extent);
  return bytes;
}

inline std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline std::string npy_file(const std::string& header, const std::string& numbers,
                            int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), '\0'};
  bytes += version == 1 ? little_endian(static_cast<uint16_t>(header.size()))
                        : little_endian(static_cast<uint32_t>(header.size()));
  return bytes + header + numbers;
}

// All samples of a data set, in order.
struct Samples {
  std::vector<float> features, labels;
};

inline Samples read_all(const Dataset& dataset) {
  const size_t count = dataset.size();
  Samples samples{
      std::vector<float>(count * static_cast<size_t>(dataset.feature_shape().elements())),
      std::vector<float>(count * static_cast<size_t>(dataset.label_shape().elements()))};
  std::vector<uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  dataset.read(ids, samples.features.data(), samples.labels.data());
  return samples;
}

// `count` samples with one feature, 0, 10, 20 …, and the sample's number as label.
inline Dataset numbered(uint64_t count) {
  std::vector<float> features, labels;
  for (uint64_t i = 0; i < count; ++i) {
    features.push_back(static_cast<float>(10 * i));
    labels.push_back(static_cast<float>(i));
  }
  return in_memory(features, {1}, labels);
}

}  // namespace starling::data
