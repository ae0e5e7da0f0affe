#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "error_of.h"
#include "starling/error.h"

namespace starling {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("starling_mapped_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& text) {
    // Never the same name twice: a file that is mapped must not be cut short.
    const auto path = folder_ / ("file" + std::to_string(++written_));
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  static std::string text_of(const MappedFile& file) {
    return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
  }

  std::filesystem::path folder_;
  int written_ = 0;
};

TEST_F(MappedFileTest, HasTheBytesOfTheFile) {
  const MappedFile file(write("starlings"));
  file.read_ahead();
  EXPECT_EQ(text_of(file), "starlings");
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  const MappedFile file(write(""));
  file.read_ahead();
  EXPECT_TRUE(file.bytes().empty());
}

TEST_F(MappedFileTest, MovesItsBytes) {
  MappedFile first(write("murmuration"));
  MappedFile second(std::move(first));
  EXPECT_EQ(text_of(second), "murmuration");
  MappedFile third(write(""));
  third = std::move(second);
  EXPECT_EQ(text_of(third), "murmuration");
}

TEST_F(MappedFileTest, OutlivesTheNameOfTheFile) {
  const auto path = write("gone");
  const MappedFile file(path);
  std::filesystem::remove(path);
  EXPECT_EQ(text_of(file), "gone");
}

TEST_F(MappedFileTest, RefusesWhatIsNotARegularFile) {
  EXPECT_THROW(MappedFile(folder_ / "absent"), Error);
  EXPECT_THROW(MappedFile{folder_}, Error);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(folder_ / "pipe"), Error);
  const std::string message = refusal([&] { MappedFile(folder_ / "absent"); });
  EXPECT_NE(message.find("absent"), std::string::npos) << message;
}

}  // namespace
}  // namespace starling
