#include "data/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_files.h"

namespace starling::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string little_endians(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes += little_endian(value);
  return bytes;
}

std::string header(const std::string& type, const std::string& shape,
                   const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape +
         ", }          \n";
}

class Npy : public FolderTest {
 protected:
  Dataset open(const std::string& features) {
    return npy(write("features.npy", features), write("labels.npy", labels_));
  }

  std::string file_refusal(const std::string& features) {
    const std::string message = refusal([&] { open(features); });
    EXPECT_THAT(message, HasSubstr((folder_ / "features.npy").string()));
    return message;
  }

  std::string refused_header(const std::string& text) { return file_refusal(npy_file(text, "")); }

  const std::string labels_ = npy_file(header("<i8", "(2,)"), little_endians<int64_t>({3, 1}));
  const std::string matrix_ =
      npy_file(header("<f4", "(2, 3)"), little_endians<float>({1, 2, 3, 4, 5, 6}));
};

TEST_F(Npy, ReadsAMatrixAndIntegerLabels) {
  const Dataset data = open(matrix_);
  EXPECT_EQ(data.size(), 2u);
  EXPECT_EQ(data.feature_shape(), Shape{3});
  EXPECT_EQ(data.label_shape(), Shape{1});
  const Samples samples = read_all(data);
  EXPECT_THAT(samples.features, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(samples.labels, ElementsAre(3, 1));
}

TEST_F(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const std::string file =
        npy_file(header("<f4", "(2, 1)"), little_endians<float>({5, 7}), version);
    EXPECT_THAT(read_all(open(file)).features, ElementsAre(5, 7)) << version;
  }
}

TEST_F(Npy, ReadsEveryElementType) {
  const auto read = [&](const std::string& type, const std::string& bytes) {
    return read_all(open(npy_file(header(type, "(2,)"), bytes))).features;
  };
  EXPECT_THAT(read("<f8", little_endians<double>({-1.5, 2.5})), ElementsAre(-1.5, 2.5));
  EXPECT_THAT(read("|u1", little_endians<uint8_t>({0, 255})), ElementsAre(0, 255));
  EXPECT_THAT(read("|b1", little_endians<uint8_t>({0, 1})), ElementsAre(0, 1));
  EXPECT_THAT(read("|i1", little_endians<int8_t>({-128, 127})), ElementsAre(-128, 127));
  EXPECT_THAT(read("<i2", little_endians<int16_t>({-300, 300})), ElementsAre(-300, 300));
  EXPECT_THAT(read("<i4", little_endians<int32_t>({-70000, 1})), ElementsAre(-70000, 1));
  EXPECT_THAT(read("<i8", little_endians<int64_t>({-7, 1 << 20})), ElementsAre(-7, 1 << 20));
  EXPECT_THAT(read(">i2", big_endian<int16_t>(-2) + big_endian<int16_t>(5)), ElementsAre(-2, 5));
}

TEST_F(Npy, ScalesFeaturesOnly) {
  const Dataset data =
      npy(write("features.npy", matrix_), write("labels.npy", labels_), {.scale = 0.5f});
  EXPECT_THAT(read_all(data).features, ElementsAre(0.5, 1, 1.5, 2, 2.5, 3));
  EXPECT_THAT(read_all(data).labels, ElementsAre(3, 1));
}

TEST_F(Npy, NotANumberIsRefusedWithTheSamplesNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Dataset data = open(npy_file(header("<f4", "(2, 1)"), little_endians<float>({1, nan})));
  EXPECT_THAT(refusal([&] { read_all(data); }), HasSubstr("sample 1 of"));
  float feature, label;
  data.read(std::vector<uint64_t>{0}, &feature, &label);
  EXPECT_EQ(feature, 1);
}

TEST_F(Npy, RefusesFortranOrderWithTheRemedy) {
  EXPECT_THAT(refused_header(header("<f4", "(2, 3)", "True")), HasSubstr("ascontiguousarray"));
}

TEST_F(Npy, RefusesOtherTypesWithTheRemedy) {
  for (const char* type : {"<c8", "|O", "<U7", "<f2", "", "f4", "|i4", "<f44"}) {
    EXPECT_THAT(refused_header(header(type, "(2,)")), HasSubstr("astype")) << type;
  }
}

TEST_F(Npy, RefusesTruncatedFiles) {
  for (size_t length = 0; length < matrix_.size(); ++length)
    file_refusal(matrix_.substr(0, length));
  EXPECT_THAT(file_refusal(matrix_.substr(0, matrix_.size() - 1)), HasSubstr("cut short"));
  EXPECT_THAT(file_refusal(matrix_ + "x"), HasSubstr("damaged"));
}

TEST_F(Npy, RefusesMalformedHeaders) {
  for (const char* text :
       {"", "{", "{}", "[]", "{'descr': '<f4'}", "{'descr': [('a', '<f4')]}", "{'descr': '<f4",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, -3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, x)}",
        "{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} and more",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'code': 'evil'}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}"}) {
    EXPECT_THAT(refused_header(text), HasSubstr("numpy.save")) << text;
  }
}

TEST_F(Npy, RefusesHugeAndEmptyShapes) {
  EXPECT_THAT(refused_header(header("<f4", "(18446744073709551615, 2)")),
              HasSubstr("no file is as large"));
  EXPECT_THAT(refused_header(header("<f8", "(4294967296, 536870912)")),
              HasSubstr("no file is as large"));
  EXPECT_THAT(refused_header(header("<f4", "(0, 3)")), HasSubstr("at least one sample"));
  EXPECT_THAT(refused_header(header("<f4", "()")), HasSubstr("0 axes"));
  EXPECT_THAT(refused_header(header("<f4", "(1, 1, 1, 1, 1, 1, 1, 1)")), HasSubstr("8 axes"));
}

TEST_F(Npy, RefusesHeadersLongerThanTheFile) {
  std::string file = npy_file(header("<f4", "(2,)"), "", 2);
  file.replace(8, 4, little_endian(uint32_t{0xFFFFFFFF}));
  EXPECT_THAT(file_refusal(file), HasSubstr("declares a header of 4294967295 bytes"));
  file[6] = 9;
  EXPECT_THAT(file_refusal(file), HasSubstr("version is 9"));
}

}  // namespace
}  // namespace starling::data
