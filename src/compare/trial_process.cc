#include "compare/trial_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// A signal ends the wait at once; this is for one that comes just before it.
constexpr int kLookEveryMs = 200;
// For a trial that was asked to end: it finishes its step first.
constexpr std::chrono::seconds kEndLimit{10};

Error start_error(int code) {
  return run_error(fmt::format("a trial can't be started: {}", std::strerror(code)),
                   "close other programs, or raise the limits of this user (ulimit)");
}

// No standard input, output to the log, and the guardian's group: a Ctrl-C at the terminal is for
// the comparison, which passes it on.
class SpawnPlan {
 public:
  SpawnPlan(const std::filesystem::path& log, pid_t group) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, log.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setpgroup(&attributes_, group);
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  // Returns 0 or an error number.
  int spawn(const std::vector<std::string>& command, pid_t* process) const {
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    return posix_spawn(process, words[0], &actions_, &attributes_, words.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

TrialProcess::TrialProcess(const std::vector<std::string>& command,
                           const std::filesystem::path& log) {
  if (const int code = SpawnPlan(log, guardian_.group()).spawn(command, &process_); code != 0)
    throw start_error(code);
  // Called by number: glibc 2.36 declares pidfd_open for C only.
  pidfd_ = Socket(static_cast<int>(syscall(SYS_pidfd_open, process_, 0)));
  if (pidfd_) return;
  const int code = errno;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
  throw start_error(code);
}

TrialProcess::~TrialProcess() {
  if (ended_) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

int TrialProcess::wait(const std::function<bool()>& should_stop,
                       const std::function<void()>& on_look) {
  Clock::time_point limit = Clock::time_point::max();
  while (true) {
    pollfd polled{.fd = pidfd_.fd(), .events = POLLIN, .revents = 0};
    if (poll(&polled, 1, kLookEveryMs) == 1) break;
    on_look();
    if (limit == Clock::time_point::max() && should_stop()) {
      kill(process_, SIGTERM);
      limit = Clock::now() + kEndLimit;
    } else if (Clock::now() > limit) {
      kill(process_, SIGKILL);
    }
  }
  int status = 0;
  pid_t waited = 0;
  while ((waited = waitpid(process_, &status, 0)) < 0 && errno == EINTR) {
  }
  ended_ = true;
  if (waited < 0) return 1;  // nobody knows how: not as a success
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace starling
