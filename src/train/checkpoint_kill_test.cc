// A process that is killed while it saves a checkpoint: at each of its file operations, and at
// random moments. A good checkpoint can always be loaded, the old one or the new one.
//
// To count the operations, this program has functions of its own with the names of the C library's;
// they are found before those, by libstdc++ too.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>

#include "base/atomic_file.h"
#include "base/atomic_file_testing.h"
#include "base/random.h"
#include "seeds.h"
#include "train/checkpoint.h"
#include "train/checkpoint_testing.h"

namespace starling {
namespace {

// The file operations of this process; only those of a child are counted.
struct FileCalls {
  std::atomic<bool> counted{false};
  int fatal = 0;      // at this one, from 1, the process is killed
  bool swaps = true;  // whether the file system can exchange two names
  std::vector<std::string> passed;

  bool is_fatal(const char* name) {
    if (!counted) return false;
    passed.emplace_back(name);
    return static_cast<int>(passed.size()) == fatal;
  }
  void pass(const char* name) {
    if (is_fatal(name)) die();
  }
  [[noreturn]] static void die() {
    kill(getpid(), SIGKILL);
    while (true) pause();
  }
};
FileCalls file_calls;

// The function that this program's own stands before.
template <typename Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace
}  // namespace starling

using starling::file_calls;

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  static const auto next = starling::real(&open, "open");
  file_calls.pass("open");
  return next(path, flags, mode);
}

// One that is killed has written a part.
ssize_t write(int file, const void* bytes, size_t count) {
  static const auto next = starling::real(&write, "write");
  if (file_calls.is_fatal("write")) {
    if (next(file, bytes, count / 2) >= 0) starling::FileCalls::die();
  }
  return next(file, bytes, count);
}

// What was written outlives its process also without it: it would only take time.
int fsync(int file) {
  static const auto next = starling::real(&fsync, "fsync");
  file_calls.pass("fsync");
  return file_calls.counted ? 0 : next(file);
}

int rename(const char* from, const char* to) noexcept {
  static const auto next = starling::real(&rename, "rename");
  file_calls.pass("rename");
  return next(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  static const auto next = starling::real(&renameat2, "renameat2");
  file_calls.pass("renameat2");
  if (file_calls.counted && !file_calls.swaps) {
    errno = EINVAL;
    return -1;
  }
  return next(from_folder, from, to_folder, to, flags);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  static const auto next = starling::real(&unlinkat, "unlinkat");
  file_calls.pass("unlinkat");
  return next(folder, path, flags);
}

int unlink(const char* path) noexcept {
  static const auto next = starling::real(&unlink, "unlink");
  file_calls.pass("unlink");
  return next(path);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static const auto next = starling::real(&mkdir, "mkdir");
  file_calls.pass("mkdir");
  return next(path, mode);
}

}  // extern "C"

namespace starling {
namespace {

namespace fs = std::filesystem;
using testing::IsSupersetOf;

// A good checkpoint is there, and a process that saves another is killed.
struct KilledSave {
  const char* name;
  Snapshot before, saved;
  bool swaps = true;
  std::vector<std::string> operations;  // that there must be, among others
  std::vector<std::string> left;        // in the folder, when it was saved at last
};

// The same step, but not the same weights.
Snapshot written_anew(uint64_t step) {
  Snapshot snapshot = snapshot_of(step);
  snapshot.weights[0].values[0] += 0.5f;
  return snapshot;
}

class CheckpointKilled : public testing::TestWithParam<KilledSave> {
 protected:
  // As it was before the save: with what a writer has left that died even earlier.
  static void prepare(const fs::path& folder) {
    CheckpointStore store(folder, {.keep = 1});
    store.save(GetParam().before);
    store.wait();
    fs::create_directory(folder / ".tmp-step-00000001-1");
    write_file_atomically(folder / ".tmp-step-00000001-1" / "weights.safetensors", "half");
  }

  // Saves in a child that kills itself at an operation, 0 for none. The operations that were
  // passed, or nothing if it was killed.
  static std::optional<std::vector<std::string>> save(const fs::path& folder, int fatal) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      CheckpointStore store(folder, {.keep = 1});
      file_calls.fatal = fatal;
      file_calls.swaps = GetParam().swaps;
      file_calls.counted = true;
      store.save(GetParam().saved);
      store.wait();
      file_calls.counted = false;
      for (const std::string& name : file_calls.passed) dprintf(ends[1], "%s\n", name.c_str());
      _exit(store.failure() ? 3 : 0);
    }
    close(ends[1]);
    std::vector<std::string> passed;
    FILE* const told = fdopen(ends[0], "r");
    for (char name[32]; fscanf(told, "%31s", name) == 1;) passed.emplace_back(name);
    fclose(told);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) return std::nullopt;
    EXPECT_EQ(status, 0) << "it could not be saved";
    return passed;
  }
};

TEST_P(CheckpointKilled, AtEachFileOperationTheLastGoodOneLoads) {
  const TemporaryFolder prepared;
  prepare(prepared.path());
  bool was_new = false, is_whole = false;
  int operation = 0;
  while (!is_whole) {
    SCOPED_TRACE(++operation);
    const TemporaryFolder folder;
    fs::copy(prepared.path(), folder.path(), fs::copy_options::recursive);
    const auto passed = save(folder.path(), operation);
    is_whole = passed.has_value();
    if (is_whole) {
      EXPECT_THAT(*passed, IsSupersetOf(GetParam().operations));
    }

    auto loaded = CheckpointStore(folder.path()).load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(loaded->skipped.empty()) << loaded->skipped[0];
    const bool is_new = same_snapshot(loaded->snapshot, GetParam().saved);
    EXPECT_TRUE(is_new || same_snapshot(loaded->snapshot, GetParam().before));
    EXPECT_TRUE(is_new || !(was_new || is_whole)) << "what was there is gone again";
    was_new = is_new;

    ASSERT_TRUE(save(folder.path(), 0));
    loaded = CheckpointStore(folder.path()).load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(same_snapshot(loaded->snapshot, GetParam().saved));
    EXPECT_EQ(TemporaryFolder::names(folder.path()), GetParam().left);
  }
  EXPECT_GT(operation, 30) << "4 files, each opened, written, flushed and renamed";
}

INSTANTIATE_TEST_SUITE_P(Saving, CheckpointKilled,
                         testing::Values(KilledSave{"TheNextStep",
                                                    snapshot_of(2),
                                                    snapshot_of(3),
                                                    true,
                                                    {"mkdir", "open", "write", "fsync", "rename",
                                                     "unlinkat"},
                                                    {"step-00000003"}},
                                         KilledSave{"AStepAnew",
                                                    snapshot_of(2),
                                                    written_anew(2),
                                                    true,
                                                    {"renameat2", "unlinkat"},
                                                    {"step-00000002"}},
                                         KilledSave{"AStepAnewWhereNamesCanNotBeSwapped",
                                                    snapshot_of(2),
                                                    written_anew(2),
                                                    false,
                                                    {"renameat2", "rename", "unlinkat"},
                                                    {"step-00000002"}},
                                         KilledSave{"AnEarlierStep",
                                                    snapshot_of(3),
                                                    snapshot_of(2),
                                                    true,
                                                    {"rename"},
                                                    {"step-00000002", "superseded-step-00000003"}}),
                         [](const auto& test) { return test.param.name; });

// The child saves step after step, and tells on a pipe which ones are complete.
[[noreturn]] void save_until_killed(const fs::path& folder, uint64_t first, int pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CheckpointStore store(folder, {.keep = 2});
  for (uint64_t step = first;; ++step) {
    store.save(snapshot_of(step));
    store.wait();
    if (store.failure() || write(pipe, &step, sizeof(step)) != sizeof(step)) _exit(3);
  }
}

TEST(CheckpointKill, AGoodOneAlwaysLoads) {
  const TemporaryFolder folder;
  const RandomStream random(1, Draw::kSynthetic);
  uint64_t newest = 0;
  for (uint64_t round = 0; round < seed_count(20); ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(folder.path(), newest + 1, ends[1]);
    close(ends[1]);
    for (uint32_t saves = 1 + random.bits(2 * round) % 4; saves > 0; --saves) {
      ASSERT_EQ(read(ends[0], &newest, sizeof(newest)), static_cast<ssize_t>(sizeof(newest)));
    }
    // Somewhere in the next saves: one takes 1 to 50 ms, by the disk.
    const timespec moment{0, static_cast<long>(random.bits(2 * round + 1) % 50'000'000)};
    ppoll(nullptr, 0, &moment, nullptr);
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    while (read(ends[0], &newest, sizeof(newest)) == sizeof(newest)) {
    }
    close(ends[0]);

    const auto loaded = CheckpointStore(folder.path()).load_latest();
    ASSERT_TRUE(loaded);
    EXPECT_TRUE(loaded->skipped.empty()) << loaded->skipped[0];
    const auto step = loaded->snapshot.manifest["step"].get<uint64_t>();
    EXPECT_GE(step, newest);
    EXPECT_TRUE(same_snapshot(loaded->snapshot, snapshot_of(step)));
    newest = step;
  }
  CheckpointStore store(folder.path(), {.keep = 2});
  store.save(snapshot_of(newest + 1));
  store.wait();
  EXPECT_EQ(TemporaryFolder::names(folder.path()).size(), 2u);  // nothing of the dead is left
}

}  // namespace
}  // namespace starling
