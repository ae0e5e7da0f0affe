#include "fabric/shm/roster.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <string>

namespace starling {
namespace {

// When a process began, in the kernel's ticks; 0 if there is no such process.
uint64_t birth_of(pid_t process) {
  std::ifstream stream("/proc/" + std::to_string(process) + "/stat");
  std::string text;  // by a call that does not throw when the process ends before it is read
  std::getline(stream, text, '\0');
  // The second field is a name in brackets that may hold anything; the 22nd is what we want.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream rest(text.substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) {
    if (!(rest >> field)) return 0;
  }
  return std::stoull(field);
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, std::chrono::nanoseconds most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec timeout{.tv_sec = seconds.count(), .tv_nsec = (most - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

size_t Roster::bytes(int world) { return static_cast<size_t>(world) * sizeof(Line); }

Roster::Roster(std::span<std::byte> memory, int world, int rank, Fences fences)
    : lines_(reinterpret_cast<Line*>(memory.data())),
      world_(world),
      rank_(rank),
      sleepers_fence_(fences == Fences::kSleepers &&
                      membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)),
      pidfds_(static_cast<size_t>(world), -1) {}

Roster::~Roster() {
  for (const int pidfd : pidfds_) {
    if (pidfd >= 0) ::close(pidfd);
  }
}

bool Roster::enter() {
  Line& own = line(rank_);
  own.process = getpid();
  own.born = birth_of(getpid());
  uint32_t absent = kAbsent;
  return own.state.compare_exchange_strong(absent, kHere);
}

void Roster::mark_gone(int rank) {
  line(rank).state.store(kGone);
  for (int other = 0; other < world_; ++other) ring_bell(other);
}

void Roster::ring_all() {
  for (int other = 0; other < world_; ++other) {
    if (other != rank_) ring(other);
  }
}

void Roster::ring_bell(int rank) {
  line(rank).bell.fetch_add(1);
  syscall(SYS_futex, &line(rank).bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void Roster::arm() {
  line(rank_).waiting.store(1);
  // Whoever has not seen that by now has its own stores seen by the look that comes next.
  if (sleepers_fence_) {
    membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  } else {
    __sync_synchronize();
  }
  seen_ = line(rank_).bell.load();
  armed_ = true;
}

void Roster::disarm() {
  if (!armed_) return;
  line(rank_).waiting.store(0, std::memory_order_relaxed);
  armed_ = false;
}

void Roster::sleep(Instant deadline, Instant now) {
  if (deadline > now) {
    futex_wait(line(rank_).bell, seen_,
               std::min<std::chrono::nanoseconds>(deadline - now, kCheckEvery));
  }
  disarm();
  if (now - last_check_ >= kCheckEvery) {
    last_check_ = now;
    find_dead();
  }
}

void Roster::find_dead() {
  for (int other = 0; other < world_; ++other) {
    if (other != rank_ && line(other).state.load() == kHere && is_dead(other)) mark_gone(other);
  }
}

bool Roster::is_dead(int rank) {
  const pid_t process = line(rank).process;
  if (process == getpid()) return false;  // a thread of our own
  int& pidfd = pidfds_[static_cast<size_t>(rank)];
  if (pidfd < 0) {
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
    if (pidfd < 0) return errno == ESRCH;
    // Between its entry and now it may have died and its number been given to another.
    if (birth_of(process) != line(rank).born) return true;
  }
  pollfd polled{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&polled, 1, 0) > 0;
}

std::chrono::nanoseconds default_spin(int world) {
  // A core that sleeps takes a tenth of a millisecond to wake, on a virtual machine more, and then
  // the others wait for it in turn: with a core for each rank, waiting awake is the shorter wait.
  // All cores count, not those that this process may use: a worker is kept on a few of its own, and
  // all ranks have to come to the same.
  return sysconf(_SC_NPROCESSORS_ONLN) >= world ? std::chrono::microseconds(500)
                                                : std::chrono::microseconds(0);
}

void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace starling
