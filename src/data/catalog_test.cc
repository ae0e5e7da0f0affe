#include "data/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/test_files.h"

namespace starling::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class CatalogTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    set_cache_dir(folder_ / "cache");
  }
  void TearDown() override {
    set_cache_dir({});
    FolderTest::TearDown();
  }

  // Files of the right sizes with nothing but zeros in them.
  void write_blank_mnist(const std::filesystem::path& folder) {
    std::filesystem::create_directories(folder);
    const auto blank = [&](const char* name, std::vector<uint32_t> extents, size_t bytes) {
      std::ofstream(folder / name, std::ios::binary)
          << idx_header(0x08, extents) << std::string(bytes, '\0');
    };
    blank("train-images-idx3-ubyte", {60000, 28, 28}, 47040000);
    blank("train-labels-idx1-ubyte", {60000}, 60000);
    blank("t10k-images-idx3-ubyte", {10000, 28, 28}, 7840000);
    blank("t10k-labels-idx1-ubyte", {10000}, 10000);
  }
};

TEST_F(CatalogTest, FashionMnistIsOpenedFromItsPackage) {
  const TrainTest data = fashion_mnist();
  EXPECT_EQ(data.train.size(), 60000u);
  EXPECT_EQ(data.test.size(), 10000u);
  EXPECT_EQ(data.train.feature_shape(), (Shape{28, 28, 1}));
  EXPECT_TRUE(data.train.cheap());
  const Info train = info(data.train), test = info(data.test);
  EXPECT_EQ(train.class_counts, std::vector<uint64_t>(10, 6000));
  EXPECT_EQ(test.class_counts, std::vector<uint64_t>(10, 1000));
  EXPECT_EQ(train.feature_min, 0);
  EXPECT_EQ(train.feature_max, 1);
  EXPECT_NEAR(train.feature_mean, 0.2860, 1e-4);  // as is widely published
  float pixels[784], label;
  data.train.read(std::vector<uint64_t>{0}, pixels, &label);
  EXPECT_EQ(label, 9);  // an ankle boot
}

TEST_F(CatalogTest, FashionMnistHasItsChecksums) {
  const CatalogEntry& entry = find_entry("fashion-mnist");
  const auto folder = locate(entry);
  ASSERT_TRUE(folder.has_value());
  EXPECT_NO_THROW(verify(entry, *folder));
}

TEST_F(CatalogTest, AnAbsentDataSetSaysHowToGetIt) {
  for (const std::string& message :
       {refusal([] { mnist(); }), refusal([&] { mnist(folder_ / "nowhere"); })}) {
    EXPECT_THAT(message, HasSubstr("starling data get mnist"));
    EXPECT_THAT(message, HasSubstr((folder_ / "cache" / "mnist").string()));
    EXPECT_THAT(message, HasSubstr("t10k-labels-idx1-ubyte"));
  }
}

TEST_F(CatalogTest, FilesPlacedByHandAreFoundInTheCache) {
  write_blank_mnist(folder_ / "cache" / "mnist");
  EXPECT_EQ(mnist().train.size(), 60000u);
  EXPECT_EQ(mnist(folder_ / "cache" / "mnist").test.size(), 10000u);
}

TEST_F(CatalogTest, VerifyFindsOtherBytesOfTheSameSize) {
  write_blank_mnist(folder_ / "files");
  EXPECT_THAT(refusal([&] { verify(find_entry("mnist"), folder_ / "files"); }),
              HasSubstr("SHA-256"));
}

TEST_F(CatalogTest, OpeningFindsFilesOfAnotherSize) {
  write_blank_mnist(folder_ / "files");
  write("files/t10k-labels-idx1-ubyte", idx_header(0x08, {2}) + "ab");
  EXPECT_THAT(refusal([&] { mnist(folder_ / "files"); }), HasSubstr("has 10 bytes"));
}

TEST_F(CatalogTest, AnUnknownNameIsRefusedWithTheKnownOnes) {
  EXPECT_THAT(refusal([] { find_entry("imagenet"); }), HasSubstr("fashion-mnist, mnist"));
}

TEST_F(CatalogTest, TheCacheIsInTheUsersHomeUnlessSet) {
  EXPECT_EQ(cache_dir(), folder_ / "cache");
  set_cache_dir({});
  EXPECT_TRUE(cache_dir().string().ends_with("/.cache/starling"));
}

}  // namespace
}  // namespace starling::data
