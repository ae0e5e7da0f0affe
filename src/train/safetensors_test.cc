#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/atomic_file.h"
#include "base/atomic_file_testing.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "error_of.h"
#include "starling/error.h"
#include "train/safetensors_file.h"

namespace starling {
namespace {

using testing::HasSubstr;

std::string written(std::span<const NamedTensor> tensors, const Metadata& metadata = {}) {
  std::string file;
  write_safetensors(tensors, metadata, [&](std::span<const std::byte> bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  return file;
}

// A file with a header of our own making.
std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  return file + header + data;
}

SafetensorsView parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "file");
}

// The message with which a file is refused; fails the test when it is taken.
std::string file_refusal(const std::string& file) {
  return refusal([&] { parse(file); });
}

std::vector<NamedTensor> two_tensors() {
  return {{"dense/weight", Shape{2, 3}, {1, -2.5f, 3e-42f, std::nanf("7"), -0.0f, 6}},
          {"dense/bias", Shape{1}, {0.1f}},
          {"scale", Shape{}, {9}}};
}

TEST(Safetensors, GivesBackTheBitsSortedByName) {
  const auto tensors = two_tensors();
  const std::string file = written(tensors, {{"model", "mlp"}});
  EXPECT_EQ(file.size(), safetensors_bytes(tensors, {{"model", "mlp"}}));
  const SafetensorsView view = parse(file);
  EXPECT_EQ(view.metadata, (Metadata{{"model", "mlp"}}));
  const auto read = to_named_tensors(view, "file");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].name, "dense/bias");
  EXPECT_EQ(read[1].name, "dense/weight");
  EXPECT_EQ(read[1].shape, (Shape{2, 3}));
  EXPECT_EQ(std::memcmp(read[1].values.data(), tensors[0].values.data(), 24), 0);
  EXPECT_EQ(read[2].shape, Shape{});
}

TEST(Safetensors, AlignsDataAndDependsOnlyOnContent) {
  for (size_t length = 1; length < 20; ++length) {
    const std::vector<NamedTensor> tensors = {{std::string(length, 'n'), Shape{1}, {1}}};
    EXPECT_EQ((written(tensors).size() - sizeof(float)) % 8, 0u);
  }
  auto tensors = two_tensors();
  const std::string file = written(tensors);
  std::swap(tensors[0], tensors[2]);
  EXPECT_EQ(written(tensors), file);
}

TEST(Safetensors, HoldsNoTensorsAtAll) {
  EXPECT_TRUE(parse(written({})).tensors.empty());
  EXPECT_TRUE(parse(file_of("{}")).tensors.empty());
}

TEST(Safetensors, RefusesToWriteWhatItCouldNotRead) {
  const NamedTensor good{"a", Shape{1}, {1}};
  const auto refused = [](const std::vector<NamedTensor>& tensors) {
    EXPECT_THROW(written(tensors), Error);
  };
  refused({good, good});
  refused({{"__metadata__", Shape{1}, {1}}});
  refused({{"short", Shape{2}, {1}}});
  refused({{"\xff", Shape{1}, {1}}});
}

TEST(Safetensors, ReadsDoublesAndRefusesIntegersAsWeights) {
  const double value = 0.1;
  const std::string bytes(reinterpret_cast<const char*>(&value), sizeof(value));
  const std::string header = R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}})";
  EXPECT_EQ(to_named_tensors(parse(file_of(header, bytes)), "file")[0].values[0], 0.1f);
  const std::string whole = R"({"x":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  const std::string file = file_of(whole, bytes);
  const SafetensorsView view = parse(file);
  EXPECT_EQ(view.tensors[0].elements(), 1u);
  EXPECT_THROW(to_named_tensors(view, "file"), Error);
}

TEST(Safetensors, RefusesEveryTruncation) {
  const std::string file = written(two_tensors(), {{"key", "value"}});
  for (size_t length = 0; length < file.size(); ++length) file_refusal(file.substr(0, length));
  file_refusal(file + "x");
}

TEST(Safetensors, RefusesHostileHeaderLengths) {
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, uint64_t{1} << 63, ~uint64_t{0},
                                ~uint64_t{7}, uint64_t{100'000'001}}) {
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    EXPECT_THAT(file_refusal(file + "{}"), HasSubstr("is declared in a file of 10"));
  }
}

TEST(Safetensors, RefusesHostileHeaders) {
  const std::string data(16, 'x');
  const auto entry = [&](const std::string& shape, const std::string& offsets) {
    return file_refusal(file_of(
        R"({"x":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data));
  };
  EXPECT_THAT(entry("[4611686018427387904,4]", "[0,16]"), HasSubstr("larger than any memory"));
  EXPECT_THAT(entry("[1000000000000]", "[0,16]"), HasSubstr("needs 4000000000000 bytes"));
  EXPECT_THAT(entry("[4]", "[0,1000000000000]"), HasSubstr("outside the 16 bytes"));
  EXPECT_THAT(entry("[4]", "[16,0]"), HasSubstr("outside"));
  EXPECT_THAT(entry("[-4]", "[0,16]"), HasSubstr("shape is not"));
  EXPECT_THAT(entry("[4.0]", "[0,16]"), HasSubstr("shape is not"));
  EXPECT_THAT(entry("[4e99]", "[0,16]"), HasSubstr("shape is not"));
  EXPECT_THAT(entry("4", "[0,16]"), HasSubstr("shape is not"));
  EXPECT_THAT(entry("[4]", "[0,16,16]"), HasSubstr("not a pair"));
  EXPECT_THAT(entry("[4]", "[0,99999999999999999999]"), HasSubstr("not a pair"));
  EXPECT_THAT(entry("[3]", "[0,12]"), HasSubstr("4 bytes after the last tensor"));
  EXPECT_THAT(entry("[3]", "[4,16]"), HasSubstr("unused bytes"));
  EXPECT_THAT(file_refusal(file_of("[]")), HasSubstr("not an object"));
  EXPECT_THAT(file_refusal(file_of("{")), HasSubstr("not well-formed"));
  EXPECT_THAT(file_refusal(file_of("{} {}")), HasSubstr("not well-formed"));
  EXPECT_THAT(file_refusal(file_of("{\"\xff\":1}")), HasSubstr("not well-formed"));
  EXPECT_THAT(file_refusal(file_of(R"({"x":1})")), HasSubstr("must have dtype"));
  EXPECT_THAT(file_refusal(file_of(R"({"__metadata__":{"a":1}})")), HasSubstr("not a text"));
  EXPECT_THAT(file_refusal(file_of(R"({"__metadata__":[]})")), HasSubstr("not an object"));
  EXPECT_THAT(file_refusal(file_of(std::string(1 << 20, '['))), HasSubstr("nested deeper"));
}

TEST(Safetensors, RefusesOverlapsDuplicatesAndUnknownTypes) {
  const std::string one = R"("dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string data(8, 'x');
  EXPECT_THAT(file_refusal(file_of(R"({"a":{)" + one + R"(,"b":{)" + one + "}", data)),
              HasSubstr("overlaps"));
  EXPECT_THAT(file_refusal(file_of(R"({"a":{)" + one + R"(,"a":{)" + one + "}", data)),
              HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(
      file_refusal(file_of(R"({"a\u001b[31m":{"dtype":"F7","shape":[],"data_offsets":[0,0]}})")),
      HasSubstr(R"("a\u001b[31m" has the type "F7")"));
}

TEST(WeightsFile, IsAtomicHashedAndReadBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "best.safetensors";
  const auto tensors = two_tensors();
  const WrittenFile file = save_weights(path, tensors, {{"step", "7"}});
  EXPECT_EQ(file.sha256, sha256_hex(read_text(path, 100000)));
  EXPECT_EQ(file.bytes, std::filesystem::file_size(path));
  const Weights weights = load_weights(path);
  EXPECT_EQ(weights.tensors.size(), 3u);
  EXPECT_EQ(weights.metadata.at("step"), "7");
  EXPECT_THROW(load_weights(folder.path() / "none"), Error);
}

}  // namespace
}  // namespace starling
