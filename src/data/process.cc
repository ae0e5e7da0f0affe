#include "data/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "starling/error.h"

namespace starling::data {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutputBytes = 4096;

struct Descriptor {
  int fd = -1;
  ~Descriptor() { reset(); }
  void reset() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

Error system_error(const char* what, int code) {
  return run_error(fmt::format("cannot {}: {}", what, std::strerror(code)),
                   "close other programs, or raise the limits of this user (ulimit)");
}

// What the child does before it becomes the program.
class SpawnPlan {
 public:
  SpawnPlan(const std::filesystem::path& folder, int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    posix_spawn_file_actions_addchdir_np(&actions_, folder.c_str());
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Returns 0 or an error number.
  int spawn(const std::vector<std::string>& arguments, pid_t* pid) const {
    std::vector<char*> words;
    for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return posix_spawnp(pid, words[0], &actions_, &attributes_, words.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Takes what the pipe holds now, or as much of it as a pipe can hold: some write faster than this
// reads. Keeps the end of it. False when the pipe is closed.
bool drain(int fd, std::string& output) {
  constexpr int kPiecesMost = 256;
  std::array<char, 4096> piece;
  for (int pieces = 0; pieces < kPiecesMost; ++pieces) {
    const ssize_t count = ::read(fd, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 && errno == EAGAIN;
    output.append(piece.data(), static_cast<size_t>(count));
    if (output.size() > kMaxOutputBytes) output.erase(0, output.size() - kMaxOutputBytes);
  }
  return true;
}

// Waits for the end of the program, keeping its output. False when the deadline passes first. The
// end is told by the pidfd, not by the pipe, which a grandchild may hold open.
bool wait_for_end(int pidfd, int pipe, Clock::time_point deadline, std::string& output) {
  std::array<pollfd, 2> watched = {{{pidfd, POLLIN, 0}, {pipe, POLLIN, 0}}};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(left));
    if (ready < 0 && errno != EINTR) throw system_error("wait for a program", errno);
    if (ready <= 0) continue;
    if (watched[1].revents != 0 && !drain(pipe, output)) watched[1].fd = -1;
    if (watched[0].revents != 0) {
      if (watched[1].fd >= 0) drain(pipe, output);
      return true;
    }
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments,
                          const std::filesystem::path& folder, std::chrono::milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_error("open a pipe", errno);
  Descriptor read_end{ends[0]}, write_end{ends[1]};
  ::fcntl(read_end.fd, F_SETFL, O_NONBLOCK);

  ProcessResult result;
  pid_t pid = 0;
  const int code = SpawnPlan(folder, write_end.fd).spawn(arguments, &pid);
  write_end.reset();
  if (code == ENOENT || code == EACCES || code == ENOTDIR) {
    result.outcome = ProcessResult::Outcome::kNotFound;
    return result;
  }
  if (code != 0) throw system_error("start a program", code);

  // Called by number: glibc 2.36 declares pidfd_open for C only.
  const Descriptor pidfd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
  const int pidfd_code = errno;
  bool ended = false;
  if (pidfd.fd >= 0) ended = wait_for_end(pidfd.fd, read_end.fd, end, result.output);
  if (!ended) ::kill(-pid, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  while ((waited = ::waitpid(pid, &status, 0)) < 0 && errno == EINTR) {
  }
  if (waited < 0) throw system_error("learn how a program has ended", errno);
  if (pidfd.fd < 0) throw system_error("watch a program", pidfd_code);
  if (!ended) result.outcome = ProcessResult::Outcome::kTimedOut;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

}  // namespace starling::data
