// What the tests of workers share: small jobs with everything that makes exactness hard, and the
// workers of a launcher as processes that can be found, killed and waited for.
#pragma once

#include <sys/syscall.h>

#include <map>
#include <thread>

#include "base/atomic_file.h"
#include "command_testing.h"

namespace starling {

// A process that is not a child of the test. It is held by a descriptor, so that its number can't
// come to mean another one.
class Watched {
 public:
  explicit Watched(pid_t id) : id_(id), fd_(static_cast<int>(syscall(SYS_pidfd_open, id, 0))) {}
  Watched(Watched&& other) noexcept : id_(other.id_), fd_(std::exchange(other.fd_, -1)) {}
  ~Watched() {
    if (fd_ >= 0) close(fd_);
  }

  pid_t id() const { return id_; }
  pid_t group() const { return getpgid(id_); }
  void signal(int number) const { syscall(SYS_pidfd_send_signal, fd_, number, nullptr, 0); }

  // Waits for its end; false when the deadline passes.
  bool ended_within(std::chrono::milliseconds deadline) const {
    if (fd_ < 0) return true;  // it was gone before it was looked at
    pollfd polled{.fd = fd_, .events = POLLIN, .revents = 0};
    return poll(&polled, 1, static_cast<int>(deadline.count())) == 1;
  }

  // Waits until it is frozen; false when the deadline passes.
  bool frozen_within(std::chrono::milliseconds deadline) const {
    const auto end = Process::Clock::now() + deadline;
    while (Process::Clock::now() < end) {
      if (state_of(id_).first == 'T') return true;
      std::this_thread::yield();
    }
    return false;
  }

  // The letter that the kernel has for what a process does, and its parent.
  static std::pair<char, pid_t> state_of(pid_t id) {
    std::ifstream file(fmt::format("/proc/{}/stat", id));
    std::string text;
    std::getline(file, text);
    char state = 0;
    pid_t parent = -1;
    const size_t end = text.rfind(')');  // "id (name) state parent …"
    if (end != std::string::npos) std::istringstream(text.substr(end + 1)) >> state >> parent;
    return {state, parent};
  }

 private:
  pid_t id_;
  int fd_;
};

class WorkersTest : public CommandTest {
 protected:
  static constexpr std::chrono::seconds kSoon{10};

  // The batches of an epoch have 40, 40, 40 and 10 samples: 16 shards divide none of them, and of
  // the last some shards have no sample, so that of 7 or 8 workers some have none.
  static constexpr int kSamples = 130;

  // With this rate any way to train has learnt all there is after three epochs of 1000 samples: 87%
  // of the test samples, and nothing about it depends on who computed what. Chance has 25%.
  static constexpr const char* kQuickly = "optimizer.learning_rate=0.02";
  static constexpr double kLearnt = 0.7;
  void write_mlp_job() const { write_dense_job("mlp", 24, 40, "[optimizer]\nclip_norm = 0.5\n"); }
  // A layer so wide that its gradient is late (engine/late_layout.h) where memory is shared: in all
  // steps of an epoch but the last, of two samples.
  void write_wide_job() const { write_dense_job("wide", 13200, 32, ""); }
  // The same data for the CNN of the other tests.
  std::vector<std::string> cnn_settings() const {
    return {"--set", "shards=16",         "--set", "data.samples=130", "--set", "training.batch=40",
            "--set", "training.epochs=2", "--set", "micro_batch=2"};
  }

  // The words of a command, and more of them.
  static std::vector<std::string> joined(std::vector<std::string> first,
                                         const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }

  // How often `text` has `word` in it.
  static int count(const std::string& text, const std::string& word) {
    int found = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++found;
    return found;
  }

  // Expects a run that failed for one cause to say so once, without the names of workers.
  static void expect_told_once(const std::string& error) {
    EXPECT_EQ(count(error, "error: "), 1) << error;
    EXPECT_EQ(count(error, "hint: "), 1) << error;
    EXPECT_EQ(count(error, "[worker "), 0) << error;
  }

  // How many workers the run has lost; of those that were lost at the same time it tells at once.
  size_t lost_in(const std::string& run) const {
    const Json recoveries = report(run).at("recoveries");
    size_t lost = 0;
    for (const Json& recovery : recoveries) lost += recovery.at("lost").size();
    return lost;
  }

  // The workers of a launcher by rank.
  static std::map<int, Watched> workers_of(const Process& launcher) {
    std::map<int, Watched> workers;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      if (name.find_first_not_of("0123456789") != std::string::npos) continue;
      if (Watched::state_of(std::stoi(name)).second != launcher.id()) continue;
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      for (std::string variable; std::getline(file, variable, '\0');) {
        if (variable.starts_with("STARLING_RANK="))
          workers.emplace(std::stoi(variable.substr(14)), Watched(std::stoi(name)));
      }
    }
    return workers;
  }

  // Waits until a launcher has started so many.
  static std::map<int, Watched> wait_for_workers(const Process& launcher, size_t count) {
    const auto end = Process::Clock::now() + kSoon;
    while (Process::Clock::now() < end) {
      std::map<int, Watched> workers = workers_of(launcher);
      if (workers.size() == count) return workers;
    }
    ADD_FAILURE() << "not so many workers were started in time";
    return {};
  }

  // Of a run that came to its end, whoever was lost in it.
  void expect_nothing_left(const std::map<int, Watched>& workers) const {
    expect_all_ended(workers);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(kTemporaryPrefix)) << entry.path();
      EXPECT_FALSE(entry.is_socket()) << entry.path();
    }
  }

  // Of one that was killed as a whole: there is nobody to tidy its folder before it is resumed.
  static void expect_all_ended(const std::map<int, Watched>& workers) {
    for (const auto& [rank, worker] : workers)
      EXPECT_TRUE(worker.ended_within(kSoon)) << "worker " << rank << " is still there";
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      EXPECT_EQ(entry.path().string().find("starling"), std::string::npos) << entry.path();
  }

 private:
  // A hidden layer of so many units; `optimizer` is a section of its own.
  void write_dense_job(const std::string& name, int units, int batch,
                       const std::string& optimizer) const {
    const std::string head = fmt::format("name = \"{}\"\n", name) + R"(
shards = 16
[data]
source = "synthetic"
samples = 130
test_samples = 50
features = [20]
classes = 4
[[model.layers]]
type = "dense"
)";
    const std::string middle = fmt::format("units = {}\n", units) + R"(
activation = "relu"
[[model.layers]]
type = "dense"
units = 4
)";
    write(name + ".toml", head + middle + optimizer +
                              fmt::format("[training]\nepochs = 2\nbatch = {}\n", batch) +
                              "[training.save_best]\nvalue = \"val_accuracy\"\n");
  }
};

}  // namespace starling
