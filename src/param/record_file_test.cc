#include "param/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/atomic_file_testing.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

class RecordFileTest : public testing::Test {
 protected:
  // Two updates by worker 0.
  static RecordedStretch stretch_after(uint64_t version, uint64_t epoch = 0) {
    RecordedStretch stretch{.epoch = static_cast<uint32_t>(epoch),
                            .version = version,
                            .epochs = 4,
                            .numbers = "0.1.0 avx2",
                            .optimizer = sgd(0.1),
                            .workers = {0},
                            .log = {},
                            .averaged = {0}};
    for (uint64_t i = 0; i < 2; ++i) {
      const SampleRange samples{10 * i, 10 * i + 10};
      stretch.log.push_back(
          {.kind = Order::Kind::kLend, .worker = 0, .samples = samples, .pushes = {}});
      stretch.log.push_back({.kind = Order::Kind::kApply,
                             .worker = -1,
                             .samples = {},
                             .pushes = {{.worker = 0,
                                         .samples = samples,
                                         .version = version + i,
                                         .finite = true,
                                         .sums = {1.0}}}});
    }
    return stretch;
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(path_, std::ios::binary).rdbuf();
    return all.str();
  }
  void add_text(const std::string& more) const {
    std::ofstream(path_, std::ios::binary | std::ios::app) << more;
  }
  std::vector<uint64_t> versions() const {
    std::vector<uint64_t> all;
    for (const RecordedStretch& stretch : RecordFile::read(path_)) all.push_back(stretch.version);
    return all;
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "record.txt";
};

using Versions = std::vector<uint64_t>;

TEST_F(RecordFileTest, StretchesFollowOneAnother) {
  RecordFile file(path_);
  file.go_on_after(0);
  EXPECT_EQ(versions(), Versions{});
  file.append(stretch_after(0));
  file.append(stretch_after(2));
  EXPECT_EQ(versions(), (Versions{0, 2}));
}

TEST_F(RecordFileTest, WhatALostChiefWroteIsWrittenOnce) {
  RecordFile chief(path_);
  chief.go_on_after(0);
  chief.append(stretch_after(0));
  chief.append(stretch_after(2));
  const std::string whole = text();
  RecordFile next(path_);  // it does not know whether that was written
  next.append(stretch_after(2));
  EXPECT_EQ(text(), whole);
  next.append(stretch_after(2));  // nor does a unit that is done again
  EXPECT_EQ(text(), whole);
}

TEST_F(RecordFileTest, WhatALostChiefWroteInPartIsWrittenWhole) {
  RecordFile chief(path_);
  chief.go_on_after(0);
  chief.append(stretch_after(0));
  const std::string before = text();
  const std::string last = to_text(stretch_after(2));
  for (size_t length = 0; length < last.size(); length += 7) {
    std::ofstream(path_, std::ios::binary) << before << last.substr(0, length);
    RecordFile next(path_);
    next.append(stretch_after(2));
    ASSERT_EQ(text(), before + last) << length;
  }
}

TEST_F(RecordFileTest, WhatWasUndoneIsCutOff) {
  RecordFile file(path_);
  file.go_on_after(0);
  for (const uint64_t version : {0, 2, 4, 6}) file.append(stretch_after(version));
  add_text("stretch 0 8");  // half a line
  RecordFile resumed(path_);
  resumed.go_on_after(4);
  EXPECT_EQ(versions(), (Versions{0, 2}));
  resumed.append(stretch_after(4, 1));
  EXPECT_EQ(versions(), (Versions{0, 2, 4}));
  RecordFile anew(path_);
  anew.go_on_after(0);
  EXPECT_EQ(versions(), Versions{});
}

TEST_F(RecordFileTest, AStateThatItDoesNotReachIsRefused) {
  RecordFile file(path_);
  EXPECT_THAT(refusal([&] { file.go_on_after(4); }), HasSubstr("4 updates that were not recorded"));
  file.go_on_after(0);
  file.append(stretch_after(0));
  file.append(stretch_after(2));
  const std::string whole = text();
  for (const uint64_t version : {1, 3, 5})
    EXPECT_THAT(refusal([&] { file.go_on_after(version); }), HasSubstr("the run is at update"));
  EXPECT_EQ(text(), whole);
}

TEST_F(RecordFileTest, DamageBeforeThatStateIsRefused) {
  RecordFile file(path_);
  file.go_on_after(0);
  file.append(stretch_after(0));
  file.append(stretch_after(2));
  std::string damaged = text();
  damaged[damaged.find("lend 0 10") + 8] = '9';
  std::ofstream(path_, std::ios::binary) << damaged;
  EXPECT_THAT(refusal([&] { RecordFile(path_).go_on_after(4); }), HasSubstr("is damaged in line"));
  EXPECT_THAT(refusal([&] { RecordFile::read(path_); }), HasSubstr("is damaged in line"));
}

TEST_F(RecordFileTest, AMissingStretchIsFound) {
  std::ofstream(path_, std::ios::binary)
      << record_header() << to_text(stretch_after(0)) << to_text(stretch_after(4));
  EXPECT_THAT(refusal([&] { RecordFile::read(path_); }), HasSubstr("between updates 2 and 4"));
}

}  // namespace
}  // namespace starling
