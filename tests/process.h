// Process: a real process with its output read through pipes, for tests of the command. Every wait
// has a deadline; a process that is still there at the end of its object is killed.
//
// What a process writes to standard error fills a pipe of one page, so that a test which reads line
// by line holds it within a page of the line it has read: no sleeps are needed to catch it midway.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace starling {

class Process {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kDeadline{60};

  struct Options {
    std::string folder = ".";                 // where it runs
    std::vector<std::string> variables = {};  // "NAME=value", added to the environment
    int ignored = 0;                          // a signal that it inherits as such
  };

  Process(const std::vector<std::string>& arguments, const Options& options) {
    int out[2], err[2];
    EXPECT_EQ(pipe2(out, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(err, O_CLOEXEC), 0);
    fcntl(err[1], F_SETPIPE_SZ, 4096);
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    id_ = fork();
    if (id_ == 0) {
      // Only async-signal-safe calls from here to exec, but for the environment, which is ours.
      dup2(out[1], STDOUT_FILENO);
      dup2(err[1], STDERR_FILENO);
      if (options.ignored != 0) ::signal(options.ignored, SIG_IGN);
      for (const std::string& variable : options.variables)
        putenv(const_cast<char*>(variable.c_str()));
      if (chdir(options.folder.c_str()) == 0) execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(err[1]);
    pipes_ = {out[0], err[0]};
  }
  ~Process() {
    if (!status_) {
      kill(id_, SIGKILL);
      waitpid(id_, nullptr, 0);
    }
    for (const int pipe : pipes_) {
      if (pipe >= 0) close(pipe);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  void signal(int number) const { kill(id_, number); }

  // Reads standard error until a line has `text` in it; false when it ends before, or the deadline
  // passes.
  bool wait_for_line(const std::string& text) {
    const auto end = Clock::now() + kDeadline;
    size_t begin = 0;
    while (true) {
      for (size_t newline; (newline = error_.find('\n', begin)) != std::string::npos;
           begin = newline + 1) {
        if (error_.substr(begin, newline - begin).find(text) != std::string::npos) return true;
      }
      if (!read_some(1, end)) return false;
    }
  }

  // Reads all and waits for the end. The exit code, or 128 + signal.
  int wait() {
    const auto end = Clock::now() + kDeadline;
    while (pipes_[0] >= 0 || pipes_[1] >= 0) {
      if (!read_some(-1, end)) break;
    }
    int status = 0;
    // Both pipes are closed: it has ended, or is about to; or the deadline passed, and it is
    // killed.
    if (Clock::now() >= end) {
      ADD_FAILURE() << "the process was not done in time; standard error: " << error_;
      kill(id_, SIGKILL);
    }
    waitpid(id_, &status, 0);
    status_ = status;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Goes away, as `tee` does at Ctrl-C and `head` when it has enough.
  void read_no_more() {
    for (int& pipe : pipes_) close(std::exchange(pipe, -1));
  }

  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }

 private:
  // Reads once from pipe `which`, or from whichever is ready; false at the end of it, or of time.
  bool read_some(int which, Clock::time_point end) {
    std::array<pollfd, 2> polled{};
    for (size_t i = 0; i < 2; ++i) {
      const bool wanted = which < 0 || static_cast<size_t>(which) == i;
      polled[i] = {.fd = wanted ? pipes_[i] : -1, .events = POLLIN, .revents = 0};
    }
    if (polled[0].fd < 0 && polled[1].fd < 0) return false;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0 || poll(polled.data(), polled.size(), static_cast<int>(left)) <= 0) return false;
    for (size_t i = 0; i < 2; ++i) {
      if (polled[i].revents == 0) continue;
      std::array<char, 512> buffer;
      const ssize_t count = read(pipes_[i], buffer.data(), buffer.size());
      if (count > 0) {
        (i == 0 ? output_ : error_).append(buffer.data(), static_cast<size_t>(count));
      } else {
        close(pipes_[i]);
        pipes_[i] = -1;
      }
    }
    return true;
  }

  pid_t id_ = -1;
  std::array<int, 2> pipes_{-1, -1};
  std::string output_, error_;
  std::optional<int> status_;
};

}  // namespace starling
