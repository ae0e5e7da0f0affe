// What can happen to a checkpoint on a disk: flipped bytes, cut, lost and exchanged files.
// Whatever happens, what is loaded is what was saved, or nothing is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/atomic_file_testing.h"
#include "base/read_file.h"
#include "error_of.h"
#include "starling/error.h"
#include "train/checkpoint.h"
#include "train/checkpoint_testing.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Steps 1 and 2 are saved; step 2 is what the tests damage.
class DamagedCheckpoint : public testing::Test {
 protected:
  DamagedCheckpoint() : store_(folder_.path()) {
    store_.save(snapshot_of(1));
    store_.save(snapshot_of(2));
    store_.wait();
    for (const std::string& name : TemporaryFolder::names(newest_))
      files_.push_back(newest_ / name);
  }

  static void overwrite(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  }

  static void flip(const fs::path& path, size_t position, int mask) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(static_cast<std::streamoff>(position));
    const int byte = file.get() ^ mask;
    file.seekp(static_cast<std::streamoff>(position));
    file.put(static_cast<char>(byte));
  }

  // The newest is loaded as it was saved, or the one before it, with a reason.
  void expect_never_wrong(const std::string& what) {
    const auto loaded = store_.load_latest();
    ASSERT_TRUE(loaded) << what;
    if (loaded->skipped.empty()) {
      EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(2))) << what;
    } else {
      EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(1))) << what;
      EXPECT_THAT(loaded->skipped[0], HasSubstr("step-00000002")) << what;
      ++skipped_;
    }
  }

  TemporaryFolder folder_;
  fs::path newest_ = folder_.path() / "step-00000002";
  CheckpointStore store_;
  std::vector<fs::path> files_;
  int skipped_ = 0;
};

TEST_F(DamagedCheckpoint, EveryFlippedByteIsNoticedOrHarmless) {
  int flips = 0;
  for (const fs::path& file : files_) {
    const std::string text = read_text(file, 1 << 20);
    const bool manifest = file.filename() == "manifest.json";
    for (size_t i = 0; i < text.size(); ++i) {
      for (const int mask : {0x01, 0x20, 0x80}) {
        flip(file, i, mask);
        const int before = skipped_;
        expect_never_wrong(file.string() + " byte " + std::to_string(i));
        // Only white space of the manifest may change without being noticed.
        EXPECT_TRUE(manifest || skipped_ == before + 1) << file << " byte " << i;
        flip(file, i, mask);
        ++flips;
      }
    }
    EXPECT_EQ(read_text(file, 1 << 20), text);
  }
  EXPECT_GT(flips, 2000);
}

TEST_F(DamagedCheckpoint, EveryCutAndEveryAddedByteIsNoticed) {
  for (const fs::path& file : files_) {
    const std::string text = read_text(file, 1 << 20);
    // The manifest ends in a newline, which it does not need.
    for (size_t length = text.size() - (file.filename() == "manifest.json" ? 1 : 0);
         length-- > 0;) {
      fs::resize_file(file, length);
      const int before = skipped_;
      expect_never_wrong(file.string() + " cut at " + std::to_string(length));
      EXPECT_EQ(skipped_, before + 1) << file << " cut at " << length;
    }
    overwrite(file, text + "x");
    const int before = skipped_;
    expect_never_wrong(file.string() + " and a byte more");
    EXPECT_EQ(skipped_, before + 1);
    overwrite(file, text);
  }
}

TEST_F(DamagedCheckpoint, LostAndSwappedFilesAreNoticed) {
  for (const fs::path& file : files_) {
    const std::string text = read_text(file, 1 << 20);
    fs::remove(file);
    expect_never_wrong(file.string() + " lost");
    EXPECT_EQ(skipped_, 1);
    overwrite(file, text);
    const fs::path other = folder_.path() / "step-00000001" / file.filename();
    if (file.filename() != "manifest.json") {
      overwrite(file, read_text(other, 1 << 20));  // whole, but of another step
      expect_never_wrong(file.string() + " swapped");
      EXPECT_EQ(skipped_, 2);
      overwrite(file, text);
    }
    skipped_ = 0;
  }
}

// Each is whole in itself, and says of which step it is.
TEST_F(DamagedCheckpoint, GenerationsThatWereExchangedAreNoticed) {
  store_.save(snapshot_of(3));
  store_.wait();
  const fs::path third = folder_.path() / "step-00000003", aside = folder_.path() / "aside";
  fs::rename(newest_, aside);
  fs::rename(third, newest_);
  fs::rename(aside, third);
  const auto loaded = store_.load_latest();
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(1)));
  EXPECT_THAT(loaded->skipped,
              testing::ElementsAre(HasSubstr("step-00000003: this is the checkpoint of step 2"),
                                   HasSubstr("step-00000002: this is the checkpoint of step 3")));
  EXPECT_THAT(refusal([&] { CheckpointStore::load(third); }), HasSubstr("of step 2"));
  fs::rename(third, aside);  // one that someone has put aside may have any name
  EXPECT_TRUE(same_snapshot(CheckpointStore::load(aside).snapshot, snapshot_of(2)));
}

// After steps that were skipped the weights are the same, and only the manifests differ.
TEST_F(DamagedCheckpoint, AManifestOfAnotherGenerationIsNoticed) {
  Snapshot third = snapshot_of(2);
  third.manifest["step"] = 3;
  store_.save(third);
  store_.wait();
  for (const char* name : {"step-00000002", "step-00000001"}) {
    const fs::path file = folder_.path() / "step-00000003" / "manifest.json";
    overwrite(file, read_text(folder_.path() / name / "manifest.json", 1 << 20));
    const auto loaded = store_.load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(2)));
    EXPECT_THAT(loaded->skipped, testing::ElementsAre(HasSubstr("step-00000003")));
  }
}

TEST_F(DamagedCheckpoint, NewerFormatsAndHostileManifestsAreRefused) {
  const fs::path file = newest_ / "manifest.json";
  const std::string text = read_text(file, 1 << 20);
  Json manifest = parse_json(text);
  manifest["version"] = 2;
  for (const std::string& hostile :
       {to_text(manifest), std::string("[]"), std::string(1 << 20, '['), std::string("null"),
        std::string(R"({"format":"starling checkpoint","version":1})")}) {
    overwrite(file, hostile);
    EXPECT_THROW(CheckpointStore::load(newest_), Error);
  }
}

TEST_F(DamagedCheckpoint, AllDamagedIsAnErrorThatSaysEach) {
  for (const char* step : {"step-00000001", "step-00000002"}) {
    overwrite(folder_.path() / step / "weights.safetensors", "");
  }
  EXPECT_THAT(refusal([&] { store_.load_latest(); }),
              testing::AllOf(HasSubstr("step-00000001"), HasSubstr("step-00000002")));
}

}  // namespace
}  // namespace starling
