#include "train/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/atomic_file_testing.h"
#include "starling/error.h"
#include "train/checkpoint_testing.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Checkpoint, GivesBackWhatWasSaved) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path() / "run" / "checkpoints");
  EXPECT_FALSE(store.load_latest());
  store.save(snapshot_of(1234));
  store.wait();
  EXPECT_EQ(store.failure(), std::nullopt);
  const auto loaded = store.load_latest();
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(1234)));
  EXPECT_EQ(loaded->path.filename(), "step-00001234");
  EXPECT_THAT(loaded->skipped, IsEmpty());
  EXPECT_THAT(TemporaryFolder::names(loaded->path),
              ElementsAre("manifest.json", "optimizer.safetensors", "statistics.safetensors",
                          "weights.safetensors"));
}

TEST(Checkpoint, DoesWithoutStatistics) {
  const TemporaryFolder folder;
  Snapshot snapshot = snapshot_of(1);
  snapshot.statistics.clear();
  CheckpointStore store(folder.path());
  store.save(snapshot);
  EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, snapshot));
  EXPECT_FALSE(fs::exists(folder.path() / "step-00000001" / "statistics.safetensors"));
}

TEST(Checkpoint, KeepsTheNewestInNumericalOrder) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep = 2});
  for (const uint64_t step : {99'999'998ull, 99'999'999ull, 100'000'000ull, 1'000'000'000ull}) {
    store.save(snapshot_of(step));
  }
  store.wait();
  EXPECT_THAT(TemporaryFolder::names(folder.path()),
              ElementsAre("step-100000000", "step-1000000000"));
  EXPECT_EQ(store.load_latest()->snapshot.manifest["step"], 1'000'000'000);
  EXPECT_THROW(CheckpointStore(folder.path(), {.keep = 0}), Error);
}

TEST(Checkpoint, ResumedRunSetsLaterStepsAside) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path(), {.keep = 1});
  for (const uint64_t step : {30, 20}) store.save(snapshot_of(step));
  store.wait();
  EXPECT_THAT(TemporaryFolder::names(folder.path()),
              ElementsAre("step-00000020", "superseded-step-00000030"));
  EXPECT_EQ(store.load_latest()->snapshot.manifest["step"], 20);
}

TEST(Checkpoint, SavingAStepAgainReplacesIt) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  store.save(snapshot_of(7));
  store.wait();
  write_file_atomically(folder.path() / "step-00000007" / "weights.safetensors", "damaged");
  EXPECT_THROW(store.load_latest(), Error);
  store.save(snapshot_of(7));
  EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, snapshot_of(7)));
  EXPECT_EQ(store.failure(), std::nullopt);
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre("step-00000007"));
}

TEST(Checkpoint, RemovesTemporariesOfDeadWriters) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / ".tmp-step-00000003-77");
  write_file_atomically(folder.path() / ".tmp-step-00000003-77" / "weights.safetensors", "half");
  CheckpointStore store(folder.path());
  store.save(snapshot_of(4));
  store.wait();
  EXPECT_THAT(TemporaryFolder::names(folder.path()), ElementsAre("step-00000004"));
}

TEST(Checkpoint, RefusesASecondWriterAtTheSameTime) {
  const TemporaryFolder folder;
  const int other = open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  CheckpointStore store(folder.path());
  store.save(snapshot_of(1));
  store.wait();
  EXPECT_THAT(store.failure().value_or(""), HasSubstr("another process is saving"));
  close(other);
  store.save(snapshot_of(1));
  EXPECT_TRUE(store.load_latest());
}

TEST(Checkpoint, SnapshotWithoutAStepIsAFailure) {
  const TemporaryFolder folder;
  CheckpointStore store(folder.path());
  for (const nlohmann::json& step : {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json()}) {
    Snapshot snapshot = snapshot_of(1);
    snapshot.manifest["step"] = step;
    store.save(snapshot);
    store.wait();
    EXPECT_THAT(store.failure().value_or(""), HasSubstr("without its step"));
  }
}

TEST(Checkpoint, FullDiskKeepsTheLastOneAndLeavesNoPart) {
  SmallDisk disk("100k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  CheckpointStore store(disk.path() / "checkpoints", {.keep = 1});
  store.save(snapshot_of(1));
  Snapshot large = snapshot_of(2);
  large.weights.push_back({"large", Shape{100000}, std::vector<float>(100000)});
  store.save(large);
  store.wait();
  const std::string failure = store.failure().value_or("");
  EXPECT_THAT(failure, HasSubstr("No space left on device"));
  EXPECT_THAT(failure, HasSubstr("bytes are needed"));
  EXPECT_THAT(failure, HasSubstr("hint: free some space"));
  EXPECT_EQ(store.failure(), std::nullopt);  // said once
  EXPECT_THAT(TemporaryFolder::names(store.folder()), ElementsAre("step-00000001"));
  EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, snapshot_of(1)));

  ASSERT_TRUE(disk.resize("1m"));  // with space again, saving goes on
  store.save(large);
  EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, large));
  EXPECT_EQ(store.failure(), std::nullopt);
}

TEST(Checkpoint, ReadOnlyDiskKeepsTheLastOneAndSavesAgainLater) {
  SmallDisk disk("1m");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  CheckpointStore store(disk.path() / "checkpoints", {.keep = 1});
  store.save(snapshot_of(1));
  store.wait();
  ASSERT_TRUE(disk.make_read_only());
  for (const uint64_t step : {2, 1}) {  // also when that one is written anew
    store.save(snapshot_of(step));
    store.wait();
    EXPECT_THAT(store.failure().value_or(""), HasSubstr("is read-only: choose another folder"));
    EXPECT_EQ(store.failure(), std::nullopt);
    EXPECT_THAT(TemporaryFolder::names(store.folder()), ElementsAre("step-00000001"));
    EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, snapshot_of(1)));
  }
  ASSERT_TRUE(disk.resize("1m"));  // writable again
  store.save(snapshot_of(2));
  EXPECT_TRUE(same_snapshot(store.load_latest()->snapshot, snapshot_of(2)));
  EXPECT_EQ(store.failure(), std::nullopt);
}

TEST(Checkpoint, UnwritableFolderIsAFailureNotAnEnd) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "file", "x");
  CheckpointStore store(folder.path() / "file" / "checkpoints");
  store.save(snapshot_of(1));
  store.wait();
  EXPECT_THAT(store.failure().value_or(""), HasSubstr("is a file, not a folder"));
}

}  // namespace
}  // namespace starling
