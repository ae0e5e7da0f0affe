#include "cluster/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "fabric/shm/shm_fabric.h"
#include "fabric/tcp/socket.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// How long workers have to end by themselves after one has died.
constexpr std::chrono::seconds kGrace{3};

std::vector<int> available_cpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), cpus_(available_cpus()) {
    if (options.fabric == FabricKind::kShm) {
      segment_.emplace(ShmFabric::make_segment({.world = options.workers}));
    } else {
      for (int i = 0; i < options.workers; ++i) listeners_.emplace_back();
      if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
        throw run_error("the system gives no random numbers", "use fabric = \"shm\"");
    }
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
    sigprocmask(SIG_BLOCK, &signals_, &old_signals_);
    signal_fd_ = Socket(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  ~Launch() {
    for (const Worker& worker : workers_) {
      if (worker.running) kill(-worker.process, SIGKILL);
    }
    for (const Worker& worker : workers_) {
      if (worker.running) waitpid(worker.process, nullptr, 0);
    }
    sigprocmask(SIG_SETMASK, &old_signals_, nullptr);
  }

  int run() {
    for (int rank = 0; rank < options_.workers; ++rank) start(rank);
    while (running() > 0) turn();
    for (Worker& worker : workers_) drain(worker, true);
    return failed_ ? *failed_ : workers_[0].code;
  }

 private:
  struct Worker {
    pid_t process = -1;
    Socket pidfd, output;
    std::string line;  // not yet ended
    bool running = false;
    bool given_up = false;  // killed here, which has been said
    int code = 0;
  };

  int running() const {
    int count = 0;
    for (const Worker& worker : workers_) count += worker.running;
    return count;
  }

  WorkerPlace place(int rank) const {
    WorkerPlace place{.rank = rank, .workers = options_.workers, .fabric = options_.fabric};
    if (segment_) {
      place.descriptor = segment_->fd();
    } else {
      place.descriptor = listeners_[static_cast<size_t>(rank)].fd();
      place.token = token_;
      for (const TcpListener& listener : listeners_) place.ports.push_back(listener.address().port);
    }
    return place;
  }

  void start(int rank) {
    int ends[2] = {-1, -1};
    if (rank > 0 && pipe2(ends, O_CLOEXEC) != 0)
      throw run_error(fmt::format("no pipe for worker {}: {}", rank, std::strerror(errno)),
                      "raise the limit of open files (ulimit -n), or use fewer workers");
    const pid_t launcher = getpid();
    const pid_t process = fork();
    if (process < 0) {
      throw run_error(fmt::format("worker {} can't be started: {}", rank, std::strerror(errno)),
                      "raise the limit of processes (ulimit -u), or use fewer workers");
    }
    if (process == 0) become_worker(rank, launcher, ends[1]);
    setpgid(process, process);  // here too: whichever comes first, it is a group before any kill
    Worker worker;
    worker.process = process;
    worker.pidfd = Socket(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    worker.running = true;
    if (rank > 0) {
      close(ends[1]);
      fcntl(ends[0], F_SETFL, O_NONBLOCK);
      worker.output = Socket(ends[0]);
    }
    workers_.push_back(std::move(worker));
  }

  // In the new process, up to exec: only calls that are safe after fork.
  [[noreturn]] void become_worker(int rank, pid_t launcher, int output) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it died before that
    setpgid(0, 0);  // Ctrl-C reaches the launcher alone, which passes it on once
    sigprocmask(SIG_SETMASK, &old_signals_, nullptr);
    if (output >= 0) {
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
    }
    pin(rank);
    const WorkerPlace own = place(rank);
    fcntl(own.descriptor, F_SETFD, 0);
    for (const auto& [name, value] : own.variables()) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments;
    for (const std::string& word : options_.command)
      arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    if (rank > 0) _exit(2);  // the chief says it for all
    const std::string message = fmt::format(
        "error: {} can't be started: {}\nhint: give the path of a program, as you would start it "
        "by itself\n",
        options_.command[0], std::strerror(errno));
    static_cast<void>(!write(STDERR_FILENO, message.data(), message.size()));
    _exit(2);
  }

  // Neighbouring cores for the lanes of a worker, and others for the next; when there are too few,
  // all workers may use all.
  void pin(int rank) const {
    const int cores = static_cast<int>(cpus_.size());
    const int each = options_.lanes > 0 ? options_.lanes : std::max(1, cores / options_.workers);
    if (each * options_.workers > cores) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < each; ++i) CPU_SET(cpus_[static_cast<size_t>(rank * each + i)], &set);
    sched_setaffinity(0, sizeof set, &set);
  }

  // Waits for something to happen, and does what it asks for.
  void turn() {
    std::vector<pollfd> polled{{signal_fd_.fd(), POLLIN, 0}};
    for (const Worker& worker : workers_) {
      polled.push_back({worker.running ? worker.pidfd.fd() : -1, POLLIN, 0});
      polled.push_back({worker.output ? worker.output.fd() : -1, POLLIN, 0});
    }
    int wait_ms = -1;
    if (kill_at_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now()).count();
      wait_ms = static_cast<int>(std::max<long>(left, 0));
    }
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) pass_signals_on();
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (polled[2 + 2 * i].revents != 0) drain(workers_[i], false);
      if (polled[1 + 2 * i].revents != 0) reap(static_cast<int>(i));
    }
    if (kill_at_ && Clock::now() >= *kill_at_) give_up();
  }

  void kill_all(int signal) {
    for (const Worker& worker : workers_) {
      if (worker.running) kill(-worker.process, signal);  // and what it has started itself
    }
  }

  // The workers that have not ended by themselves.
  void give_up() {
    kill_at_.reset();
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!workers_[rank].running) continue;
      say(fmt::format("error: worker {} has not ended {} s after another failed: it is killed",
                      rank, kGrace.count()));
      workers_[rank].given_up = true;
    }
    kill_all(SIGKILL);
  }

  void pass_signals_on() {
    signalfd_siginfo info;
    while (read(signal_fd_.fd(), &info, sizeof info) == sizeof info) kill_all(SIGTERM);
  }

  void reap(int rank) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    int status = 0;
    if (waitpid(worker.process, &status, WNOHANG) != worker.process) return;
    worker.running = false;
    drain(worker, false);
    if (segment_) ShmFabric::mark_gone_in(*segment_, rank);
    const bool killed = WIFSIGNALED(status);
    worker.code = killed ? 1 : WEXITSTATUS(status);
    if (killed && !worker.given_up) {
      say(fmt::format("error: worker {} was ended by signal {} ({})", rank, WTERMSIG(status),
                      strsignal(WTERMSIG(status))));
    }
    if (worker.code == 0) return;
    if (!failed_) failed_ = worker.code;
    // A worker that was asked to stop ends with "resume me": the others may be saving still.
    if (worker.code != EX_TEMPFAIL && !kill_at_) kill_at_ = Clock::now() + kGrace;
  }

  // Whole lines of what the worker has written; all of it at the `end`.
  void drain(Worker& worker, bool end) {
    if (!worker.output) return;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = read(worker.output.fd(), buffer, sizeof buffer)) > 0) {
      worker.line.append(buffer, static_cast<size_t>(count));
      for (size_t at; (at = worker.line.find('\n')) != std::string::npos;) {
        print(worker, worker.line.substr(0, at));
        worker.line.erase(0, at + 1);
      }
    }
    const bool closed = count == 0;
    if ((end || closed) && !worker.line.empty()) print(worker, std::exchange(worker.line, {}));
    if (closed) worker.output = Socket();
  }

  void print(const Worker& worker, const std::string& line) const {
    say(fmt::format("[worker {}] {}", &worker - workers_.data(), line));
  }

  static void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

  const LaunchOptions& options_;
  const std::vector<int> cpus_;
  std::optional<SharedSegment> segment_;
  std::vector<TcpListener> listeners_;
  JobToken token_{};
  sigset_t signals_, old_signals_;
  Socket signal_fd_;
  std::vector<Worker> workers_;
  std::optional<int> failed_;
  std::optional<Clock::time_point> kill_at_;
};

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.workers < 1 || options.workers > 1024) {
    throw input_error(fmt::format("workers = {} is out of range", options.workers), "use 1 … 1024");
  }
  return Launch(options).run();
}

}  // namespace starling
