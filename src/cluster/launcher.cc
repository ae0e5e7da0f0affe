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

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "cluster/control.h"
#include "cluster/coordination.h"
#include "cluster/core_plan.h"
#include "cluster/guardian.h"
#include "cluster/worker_error.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/tcp/socket.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// How long workers have to end by themselves after one has failed, or after a second signal.
constexpr std::chrono::seconds kGrace{1};
// For workers that are not heard of any more.
constexpr std::chrono::milliseconds kLookEvery{50};

// A pipe of this process, closed on exec.
struct Pipe {
  Socket read_end, write_end;

  explicit Pipe(const char* what) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw run_error(fmt::format("no pipe for {}: {}", what, std::strerror(errno)),
                      "raise the limit of open files (ulimit -n), or use fewer workers");
    read_end = Socket(ends[0]);
    write_end = Socket(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
};

// Signals that ask a job to stop, kept for the launcher to read.
class StopSignals {
 public:
  StopSignals() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
    sigprocmask(SIG_BLOCK, &signals, &before_);
    descriptor_ = Socket(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~StopSignals() { restore(); }

  void restore() const { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  int fd() const { return descriptor_.fd(); }
  // How many have come.
  int take() const {
    int count = 0;
    for (signalfd_siginfo info; read(fd(), &info, sizeof info) == sizeof info;) ++count;
    return count;
  }

 private:
  sigset_t before_;
  Socket descriptor_;
};

class Launch {
 public:
  explicit Launch(const LaunchOptions& options) : options_(options), cpus_(available_cpus()) {
    CoordinationOptions coordination{.workers = options.workers,
                                     .heartbeat_limit = options.heartbeat_limit,
                                     .progress_limit = options.progress_limit};
    if (options.fabric == FabricKind::kShm) {
      segment_.emplace(ShmFabric::make_segment({.world = options.workers}));
      coordination.segment = &*segment_;
    } else {
      listen();
    }
    if (options.survive) coordination_.emplace(coordination);
  }

  ~Launch() {
    signal_all(SIGKILL);
    for (const Worker& worker : workers_) {
      if (worker.running) waitpid(worker.process, nullptr, 0);
    }
  }

  int run() {
    for (int rank = 0; rank < options_.workers; ++rank) start(rank);
    while (running() > 0) turn();
    for (Worker& worker : workers_) drain(worker, true);
    return conclude();
  }

 private:
  struct Worker {
    pid_t process = -1;
    Socket pidfd, output;
    std::string line;  // not yet ended
    bool running = false;
    bool given_up = false;  // killed here
    int code = 0;
    std::string why;  // it was killed here for that
    enum class Outcome : uint8_t { kOpen, kDone, kLost } outcome = Outcome::kOpen;
  };
  using Outcome = Worker::Outcome;

  bool any(Outcome outcome) const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [&](const Worker& worker) { return worker.outcome == outcome; });
  }

  int running() const {
    int count = 0;
    for (const Worker& worker : workers_) count += worker.running;
    return count;
  }

  void listen() {
    std::vector<uint16_t> wanted = WorkerPlace::find_ports(
        [](const char* name) -> const char* { return std::getenv(name); }, options_.workers);
    wanted.resize(static_cast<size_t>(options_.workers));  // 0: any that is free
    for (const uint16_t port : wanted) listeners_.emplace_back(TcpAddress{.port = port});
    if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
      throw run_error("the system gives no random numbers", "use fabric = \"shm\"");
  }

  std::vector<uint16_t> ports() const {
    std::vector<uint16_t> result;
    for (const TcpListener& listener : listeners_) result.push_back(listener.address().port);
    return result;
  }

  WorkerPlace place(int rank) const {
    WorkerPlace place{.rank = rank,
                      .workers = std::max(options_.workers, rank + 1),
                      .fabric = options_.fabric,
                      .errors = errors_pipe_.write_end.fd()};
    if (segment_) {
      place.descriptor = segment_->fd();
    } else {
      place.descriptor = listeners_[static_cast<size_t>(rank)].fd();
      place.token = token_;
      place.ports = ports();
    }
    return place;
  }

  void start(int rank) {
    std::optional<Pipe> output;
    if (rank > 0) output.emplace("the output of a worker");
    std::pair<Socket, Socket> control;
    if (coordination_) control = control_sockets();
    const pid_t launcher = getpid();
    const pid_t process = fork();
    if (process < 0) {
      throw run_error(fmt::format("worker {} can't be started: {}", rank, std::strerror(errno)),
                      "raise the limit of processes (ulimit -u), or use fewer workers");
    }
    if (process == 0) {
      become_worker(rank, launcher, output ? output->write_end.fd() : -1, control.second.fd());
    }
    setpgid(process, guardian_.group());  // here too: whichever comes first, before any signal
    Worker worker;
    worker.process = process;
    worker.pidfd = Socket(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
    worker.running = true;
    if (output) worker.output = std::move(output->read_end);
    if (coordination_) {
      coordination_->add(
          rank, std::move(control.first),
          listeners_.empty() ? uint16_t{0} : listeners_[static_cast<size_t>(rank)].address().port);
    }
    workers_.push_back(std::move(worker));
  }

  // In the new process, up to exec: only calls that are safe after fork.
  [[noreturn]] void become_worker(int rank, pid_t launcher, int output, int control) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher) _exit(1);  // it died before that
    setpgid(0, guardian_.group());  // Ctrl-C reaches the launcher alone, which passes it on once
    signals_.restore();
    WorkerPlace own = place(rank);
    own.control = control;
    own.joins = rank >= options_.workers;
    if (output >= 0) {
      if (coordination_) {
        own.out = dup(STDOUT_FILENO);
        own.err = dup(STDERR_FILENO);
      }
      dup2(output, STDOUT_FILENO);
      dup2(output, STDERR_FILENO);
    }
    pin(rank);
    for (const int kept : {own.descriptor, own.errors, own.control}) fcntl(kept, F_SETFD, 0);
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

  void pin(int rank) const {
    const std::vector<int> own = place_worker(cpus_, options_.workers, options_.lanes, rank);
    if (own.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : own) CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
  }

  // Waits for something to happen, and does what it asks for.
  void turn() {
    std::vector<pollfd> polled{{signals_.fd(), POLLIN, 0}};
    for (const Worker& worker : workers_) {
      polled.push_back({worker.running ? worker.pidfd.fd() : -1, POLLIN, 0});
      polled.push_back({worker.output ? worker.output.fd() : -1, POLLIN, 0});
      polled.push_back(
          {coordination_ ? coordination_->fd(static_cast<int>(&worker - workers_.data())) : -1,
           POLLIN, 0});
    }
    int wait_ms = coordination_ ? static_cast<int>(kLookEvery.count()) : -1;
    if (kill_at_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(*kill_at_ - Clock::now()).count();
      wait_ms = static_cast<int>(std::max<long>(left, 0));
    }
    if (poll(polled.data(), polled.size(), wait_ms) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) pass_signals_on();
    const size_t known = workers_.size();  // a replacement may be added meanwhile
    for (size_t i = 0; i < known; ++i) {
      if (polled[2 + 3 * i].revents != 0) drain(workers_[i], false);
      if (polled[3 + 3 * i].revents != 0) coordination_->hear(static_cast<int>(i));
      if (polled[1 + 3 * i].revents != 0) reap(static_cast<int>(i));
    }
    if (coordination_) kill_the_frozen();
    if (kill_at_ && Clock::now() >= *kill_at_) give_up();
  }

  // To all that run, and what they have started themselves, once to each.
  void signal_all(int signal) const {
    guardian_.signal_group(signal);
    for (const Worker& worker : workers_) {  // one may have left for a group of its own
      if (worker.running && getpgid(worker.process) != guardian_.group())
        kill(worker.process, signal);
    }
  }

  // The workers that have not ended by themselves.
  void give_up() {
    kill_at_.reset();
    take_errors();
    // With a known cause, this worker had perhaps not come to see it yet: it is not at fault.
    const bool has_cause = std::any_of(errors_.begin(), errors_.end(),
                                       [](const WorkerError& error) { return !error.of_another; });
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      if (!workers_[rank].running) continue;
      workers_[rank].given_up = true;
      if (!has_cause)
        say(fmt::format("error: worker {} has not ended {} s after {}: it is killed", rank,
                        kGrace.count(), failed_ ? "another failed" : "a second signal"));
    }
    signal_all(SIGKILL);
  }

  void pass_signals_on() {
    for (int left = signals_.take(); left > 0; --left) {
      signal_all(SIGTERM);
      if (stopping_) kill_soon();
      stopping_ = true;
    }
  }

  void kill_soon() {
    if (!kill_at_) kill_at_ = Clock::now() + kGrace;
  }

  void take_errors() {
    for (WorkerError& error : receive_worker_errors(errors_pipe_.read_end.fd()))
      errors_.push_back(std::move(error));
  }

  void reap(int rank) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    int status = 0;
    if (waitpid(worker.process, &status, WNOHANG) != worker.process) return;
    worker.running = false;
    drain(worker, false);
    take_errors();
    if (coordination_) {
      coordination_->mark_gone(rank);
    } else if (segment_) {
      ShmFabric::mark_gone_in(*segment_, rank);
    }
    if (WIFSIGNALED(status) && can_survive()) return lose(rank, WTERMSIG(status));
    // When the first ends, all is written.
    if (WIFSIGNALED(status) && coordination_ && any(Outcome::kDone)) return;
    worker.code =
        WIFSIGNALED(status) ? code_of_signal(rank, WTERMSIG(status)) : WEXITSTATUS(status);
    if (worker.code == 0) {
      worker.outcome = Outcome::kDone;
      if (coordination_) end_well(rank);
      return;
    }
    if (!failed_) failed_ = worker.code;
    // A worker that was asked to stop ends with "resume me", or of the signal: the others may be
    // saving still.
    if (worker.code != EX_TEMPFAIL && !(stopping_ && worker.code == 128 + SIGTERM)) kill_soon();
  }

  // Whether the others go on without one that was killed.
  bool can_survive() const {
    if (!coordination_ || stopping_ || failed_ || kill_at_) return false;
    int left = 0;
    for (size_t rank = 0; rank < workers_.size(); ++rank)
      left += workers_[rank].running && coordination_->is_member(static_cast<int>(rank));
    return left >= std::max(1, options_.min_workers);
  }

  void end_well(int rank) {
    coordination_->end(rank);
    // The run is over: who waits to take part has nothing to wait for.
    for (size_t other = 0; other < workers_.size(); ++other) {
      if (workers_[other].running && !coordination_->is_member(static_cast<int>(other)))
        kill(workers_[other].process, SIGKILL);
    }
  }

  // Another worker, for a run that is under way.
  void add_worker() {
    const auto rank = static_cast<int>(workers_.size());
    if (!listeners_.empty()) listeners_.emplace_back(TcpAddress{});
    start(rank);
  }

  void lose(int rank, int signal) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    worker.outcome = Outcome::kLost;
    const bool was_member = coordination_->is_member(rank);
    coordination_->lose(rank, worker.why.empty() ? fmt::format("it was ended by signal {} ({})",
                                                               signal, strsignal(signal))
                                                 : worker.why);
    // One that was lost before it took part would be lost again.
    if (!options_.respawn || !was_member) return;
    try {
      add_worker();
    } catch (const Error& error) {
      say(fmt::format("note: worker {} is not replaced: {}", rank, error.what()));
    }
  }

  // A worker that may come back to life must not: it is killed before the others go on.
  void kill_the_frozen() {
    for (const auto& [rank, why] : coordination_->find_frozen()) {
      Worker& worker = workers_[static_cast<size_t>(rank)];
      if (!worker.running) continue;
      worker.why = why;
      kill(worker.process, SIGKILL);
    }
  }

  int code_of_signal(int rank, int signal) const {
    if (workers_[static_cast<size_t>(rank)].given_up) return 1;
    if (stopping_ && signal == SIGTERM) return 128 + signal;  // as was asked for
    if (coordination_) {
      for (const std::string& news : coordination_->unsettled()) say("error: " + news);
    }
    say(fmt::format(
        "error: worker {} was ended by signal {} ({})\nhint: {}a run with checkpoints "
        "goes on with --resume",
        rank, signal, strsignal(signal),
        signal == SIGKILL ? "if nobody killed it, memory has run out (see dmesg); " : ""));
    return 1;
  }

  // Says what went wrong; the exit code.
  int conclude() {
    take_errors();
    const std::vector<WorkerError> errors = errors_to_tell(std::move(errors_));
    for (const WorkerError& error : errors)
      say(fmt::format("error: {}\nhint: {}", error.message, error.hint));
    if (!errors.empty() && !errors[0].of_another) return errors[0].exit_code;
    if (failed_) return *failed_;
    return any(Outcome::kDone) ? 0 : workers_[0].code;
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

  // On a terminal the chief's progress bar may stand in the line: it is drawn anew after this one.
  void say(const std::string& line) const {
    fmt::print(stderr, "{}{}\n", terminal_ ? "\r\x1b[K" : "", line);
  }

  const LaunchOptions& options_;
  const std::vector<Cpu> cpus_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const StopSignals signals_;
  const Guardian guardian_;
  const Pipe errors_pipe_{"the errors of workers"};
  std::optional<SharedSegment> segment_;
  std::vector<TcpListener> listeners_;
  JobToken token_{};
  std::vector<Worker> workers_;
  std::vector<WorkerError> errors_;
  std::optional<int> failed_;                 // the code of the first that did
  bool stopping_ = false;                     // all were asked to
  std::optional<Coordination> coordination_;  // if workers are to survive the loss of others
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
