#include "data/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_files.h"

namespace starling::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint8_t kU8 = 0x08;

class Idx : public FolderTest {
 protected:
  // Two 2×3 images and their labels.
  const std::string images_ = idx_header(kU8, {2, 2, 3}) + std::string(
                                                               "\x00\x01\x02\x03\x04\x05"
                                                               "\xff\x00\xff\x00\xff\x00",
                                                               12);
  const std::string labels_ = idx_header(kU8, {2}) + std::string("\x07\x01", 2);

  std::string file_refusal(const std::string& images) {
    const auto path = write("images", images), labels = write("labels", labels_);
    const std::string message = refusal([&] { idx(path, labels); });
    EXPECT_THAT(message, HasSubstr(path.string()));
    return message;
  }
};

TEST_F(Idx, ImagesOfBytesAreScaledAndGetAChannel) {
  const Dataset data = idx(write("images", images_), write("labels", labels_));
  EXPECT_EQ(data.size(), 2u);
  EXPECT_EQ(data.feature_shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(data.label_shape(), Shape{1});
  EXPECT_TRUE(data.cheap());
  const Samples samples = read_all(data);
  EXPECT_EQ(samples.features[5], 5 * (1.0f / 255));
  EXPECT_EQ(samples.features[6], 1.0f);
  EXPECT_THAT(samples.labels, ElementsAre(7, 1));
}

TEST_F(Idx, SamplesAreReadInTheOrderAsked) {
  const Dataset data = idx(write("images", images_), write("labels", labels_), {.scale = 1.0f});
  std::vector<float> features(18), labels(3);
  data.read(std::vector<uint64_t>{1, 0, 1}, features.data(), labels.data());
  EXPECT_THAT(labels, ElementsAre(1, 7, 1));
  EXPECT_EQ(features[0], 255);
  EXPECT_EQ(features[7], 1);
}

TEST_F(Idx, GzippedFilesGiveTheSameSamples) {
  const Dataset raw = idx(write("images", images_), write("labels", labels_));
  const Dataset packed = idx(write("images.gz", gzip(images_)), write("labels.gz", gzip(labels_)));
  EXPECT_EQ(read_all(raw).features, read_all(packed).features);
  EXPECT_EQ(read_all(raw).labels, read_all(packed).labels);
}

TEST_F(Idx, GzipFilesMayHaveSeveralMembers) {
  const std::string parts = gzip(images_.substr(0, 20)) + gzip(images_.substr(20));
  const Dataset data = idx(write("images.gz", parts), write("labels", labels_));
  EXPECT_EQ(read_all(data).features[6], 1.0f);
}

template <typename T>
std::string big_endians(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes += big_endian(value);
  return bytes;
}

TEST_F(Idx, EveryElementTypeIsRead) {
  const auto read = [&](uint8_t type, const std::string& bytes) {
    const auto path = write("numbers", idx_header(type, {2, 1}) + bytes);
    return read_all(idx(path, write("labels", labels_))).features;
  };
  EXPECT_THAT(read(0x09, big_endians<int8_t>({-1, 127})), ElementsAre(-1, 127));
  EXPECT_THAT(read(0x0B, big_endians<int16_t>({-300, 300})), ElementsAre(-300, 300));
  EXPECT_THAT(read(0x0C, big_endians<int32_t>({-70000, 70000})), ElementsAre(-70000, 70000));
  EXPECT_THAT(read(0x0D, big_endians<float>({-1.5f, 0.25f})), ElementsAre(-1.5f, 0.25f));
  EXPECT_THAT(read(0x0E, big_endians<double>({-1.5, 1e-3})), ElementsAre(-1.5f, 1e-3f));
}

TEST_F(Idx, ValuesThatAreNotFiniteAreRefusedWithTheSamplesNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Dataset data =
      idx(write("numbers", idx_header(0x0D, {2, 3}) + big_endians<float>({1, 2, 3, 4, nan, 6})),
          write("labels", labels_));
  EXPECT_THAT(refusal([&] { read_all(data); }), HasSubstr("sample 1 of"));
  // A double that is too large for a float is infinite as one.
  const Dataset large =
      idx(write("doubles", idx_header(0x0E, {2}) + big_endians<double>({1e300, 0})),
          write("labels", labels_));
  EXPECT_THAT(refusal([&] { read_all(large); }), HasSubstr("sample 0 of"));
}

TEST_F(Idx, SamplesThatDoNotExistAreRefused) {
  const Dataset data = idx(write("images", images_), write("labels", labels_));
  float features[6], label;
  EXPECT_THAT(refusal([&] { data.read(std::vector<uint64_t>{2}, features, &label); }),
              HasSubstr("no sample 2"));
}

TEST_F(Idx, RefusesFilesThatAreNotIdx) {
  EXPECT_THAT(file_refusal(""), HasSubstr("0 bytes"));
  EXPECT_THAT(file_refusal("hello, world"), HasSubstr("not an IDX file"));
  EXPECT_THAT(file_refusal(idx_header(0x42, {1}) + "x"), HasSubstr("unknown type 0x42"));
  EXPECT_THAT(file_refusal(idx_header(kU8, {})), HasSubstr("0 axes"));
  EXPECT_THAT(file_refusal(idx_header(kU8, std::vector<uint32_t>(255, 1)) + "x"),
              HasSubstr("255 axes"));
}

TEST_F(Idx, RefusesTruncatedFiles) {
  for (size_t length = 0; length < images_.size(); ++length) {
    file_refusal(images_.substr(0, length));
  }
  EXPECT_THAT(file_refusal(images_.substr(0, 20)), HasSubstr("cut short"));
}

TEST_F(Idx, RefusesTrailingBytes) {
  EXPECT_THAT(file_refusal(images_ + "x"), HasSubstr("damaged"));
}

TEST_F(Idx, RefusesHugeAndEmptyExtents) {
  EXPECT_THAT(file_refusal(idx_header(kU8, {0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}) + "x"),
              HasSubstr("no file is as large"));
  // The product is 0 modulo 2^64.
  EXPECT_THAT(file_refusal(idx_header(0x0E, {1u << 31, 1u << 30, 4}) + "x"),
              HasSubstr("no file is as large"));
  EXPECT_THAT(file_refusal(idx_header(kU8, {0x7FFFFFFF, 1000}) + "x"), HasSubstr("cut short"));
  EXPECT_THAT(file_refusal(idx_header(kU8, {0, 28, 28})), HasSubstr("at least one sample"));
}

TEST_F(Idx, RefusesDifferentNumbersOfFeaturesAndLabels) {
  const auto images = write("images", images_);
  const auto labels = write("labels", idx_header(kU8, {3}) + "abc");
  EXPECT_THAT(refusal([&] { idx(images, labels); }), HasSubstr("3 labels"));
}

TEST_F(Idx, RefusesDamagedGzip) {
  const std::string packed = gzip(images_);
  EXPECT_THAT(file_refusal(packed.substr(0, packed.size() - 9)), HasSubstr("ends too early"));
  std::string flipped = packed;
  flipped[packed.size() - 6] = static_cast<char>(flipped[packed.size() - 6] ^ 1);  // the checksum
  EXPECT_THAT(file_refusal(flipped), HasSubstr("cannot be unpacked"));
  EXPECT_THAT(file_refusal(packed + "garbage"), HasSubstr("cannot be unpacked"));
  EXPECT_THAT(file_refusal(gzip(images_.substr(0, 20))), HasSubstr("cut short"));
}

TEST_F(Idx, StopsUnpackingAfterTheDeclaredBytes) {
  const std::string bomb = gzip(images_ + std::string(64 << 20, '\0'));
  EXPECT_LT(bomb.size(), size_t{1} << 20);
  EXPECT_THAT(file_refusal(bomb), HasSubstr("more than the 28 bytes"));
  const std::string larger = idx_header(kU8, {2, 1000}) + std::string(2000, 'x');
  EXPECT_THAT(file_refusal(gzip(larger + "x")), HasSubstr("more than the 2012 bytes"));
}

TEST_F(Idx, RefusesToAllocateWhatPackedBytesCannotHold) {
  const std::string liar = gzip(idx_header(kU8, {1u << 30, 1u << 10}) + "x");
  EXPECT_THAT(file_refusal(liar), HasSubstr("packed bytes can hold"));
}

}  // namespace
}  // namespace starling::data
