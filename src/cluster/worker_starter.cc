#include "cluster/worker_starter.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cluster/control.h"
#include "cluster/worker_error.h"
#include "fabric/tcp/rendezvous.h"
#include "starling/error.h"

namespace starling {

Pipe::Pipe(const char* what) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw run_error(fmt::format("no pipe for {}: {}", what, std::strerror(errno)),
                    "raise the limit of open files (ulimit -n), or use fewer workers");
  read_end = Socket(ends[0]);
  write_end = Socket(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

WorkerStarter::WorkerStarter(const LaunchOptions& options, int errors)
    : options_(options),
      errors_(errors),
      cpus_(available_cpus()),
      guardian_({.farewell = options.farewell, .workers = lives_.read_end.fd()}) {
  if (options.fabric == FabricKind::kShm) {
    segment_.emplace(ShmFabric::make_segment({.world = options.workers}));
  } else {
    listen();
  }
}

void WorkerStarter::listen() {
  std::vector<uint16_t> wanted = WorkerPlace::find_ports(
      [](const char* name) -> const char* { return std::getenv(name); }, options_.workers);
  wanted.resize(static_cast<size_t>(options_.workers));  // 0: any that is free
  for (const uint16_t port : wanted) listeners_.emplace_back(TcpAddress{.port = port});
  if (getrandom(token_.data(), token_.size(), 0) != static_cast<ssize_t>(token_.size()))
    throw run_error("the system gives no random numbers", "use fabric = \"shm\"");
}

WorkerPlace WorkerStarter::place(int rank) const {
  WorkerPlace place{.rank = rank,
                    .workers = std::max(options_.workers, rank + 1),
                    .servers = options_.servers,
                    .fabric = options_.fabric,
                    .link = options_.link,
                    .apart = options_.apart,
                    .crowded = cpus_.size() < static_cast<size_t>(options_.workers),
                    .errors = errors_,
                    .launched = launched_};
  // Where lost workers are survived, the launcher finds the silent ones: it is to be the first.
  if (options_.survive) place.patience += options_.heartbeat_limit + options_.progress_limit;
  if (segment_) {
    place.descriptor = segment_->fd();
  } else {
    place.descriptor = listeners_[static_cast<size_t>(rank)].fd();
    place.token = token_;
    for (const TcpListener& listener : listeners_) place.ports.push_back(listener.address().port);
  }
  return place;
}

void WorkerStarter::tell_of_end(int ended) const {
  RendezvousOptions options{.rank = ended, .token = token_, .view = kFirstView};
  for (const TcpListener& listener : listeners_) options.addresses.push_back(listener.address());
  for (size_t rank = 0; rank < listeners_.size(); ++rank) {
    if (static_cast<int>(rank) != ended) starling::tell_of_end(options, options.addresses[rank]);
  }
}

WorkerStarter::Started WorkerStarter::start(int rank, int slot) {
  const bool has_listener = segment_ || static_cast<size_t>(rank) < listeners_.size();
  if (!has_listener) listeners_.emplace_back(TcpAddress{});
  std::optional<Pipe> output;
  if (rank > 0) output.emplace("the output of a worker");
  std::pair<Socket, Socket> control;
  if (options_.survive) control = control_sockets();
  const pid_t launcher = getpid();
  const pid_t process = fork();
  if (process < 0) {
    throw run_error(fmt::format("worker {} can't be started: {}", rank, std::strerror(errno)),
                    "raise the limit of processes (ulimit -u), or use fewer workers");
  }
  if (process == 0)
    become_worker(rank, slot, launcher, output ? output->write_end.fd() : -1, control.second.fd());
  setpgid(process, guardian_.group());  // here too: whichever comes first, before any signal
  Socket pidfd(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!pidfd) {
    const std::string why = std::strerror(errno);
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    throw run_error(fmt::format("worker {} can't be watched: {}", rank, why),
                    "raise the limit of open files (ulimit -n), or use fewer workers");
  }
  Started started{
      .process = process, .pidfd = std::move(pidfd), .control = std::move(control.first)};
  if (output) started.output = std::move(output->read_end);
  if (!segment_) started.port = listeners_[static_cast<size_t>(rank)].address().port;
  return started;
}

// In the new process, up to exec: only calls that are safe after fork.
void WorkerStarter::become_worker(int rank, int slot, pid_t launcher, int output,
                                  int control) const {
  // Of the launcher's death. The guardian ends those who don't by themselves. Not by SIGTERM: the
  // launcher may have passed one on, and a second would end the worker before it has saved.
  signal(SIGHUP, SIG_DFL);
  prctl(PR_SET_PDEATHSIG, options_.farewell.count() > 0 ? SIGHUP : SIGKILL);
  if (getppid() != launcher) _exit(1);  // it died before that
  setpgid(0, guardian_.group());  // Ctrl-C reaches the launcher alone, which passes it on once
  signals_.restore();
  WorkerPlace own = place(rank);
  own.control = control;
  own.joins = rank >= options_.workers;
  if (output >= 0) {
    if (options_.survive) {
      own.out = dup(STDOUT_FILENO);
      own.err = dup(STDERR_FILENO);
    }
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
  }
  pin(slot);
  for (const int kept : {own.descriptor, own.errors, own.control, lives_.write_end.fd()})
    fcntl(kept, F_SETFD, 0);
  for (const auto& [name, value] : own.variables()) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& word : options_.command)
    arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  if (rank > 0) _exit(2);  // the chief says it for all
  constexpr int kCode = 2;
  send_worker_error(
      own.errors,
      {rank, kCode, false,
       fmt::format("{} can't be started: {}", options_.command[0], std::strerror(errno)),
       "give the path of a program, as you would start it by itself"});
  _exit(kCode);
}

void WorkerStarter::pin(int slot) const {
  const std::vector<int> own = place_worker(cpus_, options_.workers, options_.lanes, slot);
  if (own.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : own) CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

}  // namespace starling
