// A server of all-reduces: the ranks of one contender, processes of this host, each on a core of
// its own. Rank 0 does what it is told on standard input, one line of answer each; between commands
// all ranks sleep, so that contenders can take turns while all are alive. Plain C++17, because the
// peers include it too.
//
//   run FLOATS N     N timed all-reduces of that many floats, after some that are not timed;
//                    answers the seconds
//   check FLOATS     one all-reduce of numbers that differ; answers how many sums were wrong,
//                    counted over all ranks
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "server.h"

namespace bench {

// One rank of a contender.
class AllReducer {
 public:
  virtual ~AllReducer() = default;
  // What follows is of this length. Called by all ranks.
  virtual void prepare(size_t floats) = 0;
  // This rank's array: all_reduce replaces it by the sum over all ranks.
  virtual float* array() = 0;
  // Where this rank finds the sum: its array, or a result that all share.
  virtual float* sum() { return array(); }
  virtual void all_reduce() = 0;
  // Waits for all ranks; needed where one rank's array is another's result.
  virtual void meet() {}
};

// How rank 0 tells the others what to do.
struct Control {
  int rank = 0, world = 1;
  int in = -1;           // of the others
  std::vector<int> out;  // of rank 0
};

// The n-th core of those that the process may use, in turn when there are too few.
inline void pin_to_own_core(int rank) {
  cpu_set_t usable, own;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return;
  int left = rank % std::max(1, CPU_COUNT(&usable));
  CPU_ZERO(&own);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &usable) && left-- == 0) CPU_SET(cpu, &own);
  }
  sched_setaffinity(0, sizeof own, &own);
}

// Becomes `world` processes: this one is rank 0, and the others end with it.
inline Control fork_ranks(int world) {
  Control control;
  control.world = world;
  const pid_t chief = getpid();
  for (int rank = 1; rank < world; ++rank) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    const pid_t process = fork();
    if (process < 0) throw std::runtime_error("no process");
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != chief) _exit(1);
      for (const int other : control.out) close(other);
      close(ends[1]);
      control = {rank, world, ends[0], {}};
      break;
    }
    close(ends[0]);
    control.out.push_back(ends[1]);
  }
  pin_to_own_core(control.rank);
  return control;
}

// For ranks that somebody else has started: named pipes 1, 2, … in a folder.
inline Control open_pipes(const std::string& folder, int rank, int world) {
  Control control{rank, world, -1, {}};
  if (rank > 0) {
    control.in = open((folder + "/" + std::to_string(rank)).c_str(), O_RDONLY | O_CLOEXEC);
    if (control.in < 0) throw std::runtime_error("no pipe in " + folder);
  }
  for (int other = 1; rank == 0 && other < world; ++other) {
    control.out.push_back(
        open((folder + "/" + std::to_string(other)).c_str(), O_WRONLY | O_CLOEXEC));
    if (control.out.back() < 0) throw std::runtime_error("no pipe in " + folder);
  }
  pin_to_own_core(rank);
  return control;
}

struct Order {
  uint64_t check = 0, floats = 0, count = 0;
};

inline bool next_order(const Control& control, Order& order) {
  if (control.rank > 0) return read(control.in, &order, sizeof order) == sizeof order;
  std::string line, command;
  if (!std::getline(std::cin, line)) return false;
  std::istringstream words(line);
  words >> command >> order.floats;
  order.check = command == "check";
  order.count = 1;
  if (command == "run") words >> order.count;
  if (!words || (command != "run" && command != "check") || order.floats == 0)
    throw std::runtime_error("unknown command: " + line);
  for (const int out : control.out) {
    if (write(out, &order, sizeof order) != sizeof order)
      throw std::runtime_error("a rank is gone");
  }
  return true;
}

inline double seconds_of(AllReducer& reducer, const Order& order) {
  // Zeros: the sum of a sum stays what it is, however often it is made.
  std::fill_n(reducer.array(), order.floats, 0.0f);
  for (uint64_t i = 0; i < 1 + order.count / 10; ++i) reducer.all_reduce();
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t i = 0; i < order.count; ++i) reducer.all_reduce();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline double wrong_sums(AllReducer& reducer, const Control& control, size_t floats) {
  const auto value = [](int rank, size_t i) {
    return static_cast<float>((i * 7 + static_cast<size_t>(rank) * 13) % 1009);  // sums are exact
  };
  for (size_t i = 0; i < floats; ++i) reducer.array()[i] = value(control.rank, i);
  reducer.all_reduce();
  float wrong = 0;
  for (size_t i = 0; i < floats; ++i) {
    float sum = 0;
    for (int rank = 0; rank < control.world; ++rank) sum += value(rank, i);
    wrong += reducer.sum()[i] != sum;
  }
  reducer.meet();
  reducer.array()[0] = wrong;
  reducer.all_reduce();
  return reducer.sum()[0];
}

// Until standard input of rank 0 ends.
inline void serve(AllReducer& reducer, const Control& control) {
  size_t prepared = 0;
  for (Order order; next_order(control, order);) {
    if (prepared != order.floats) reducer.prepare(prepared = order.floats);
    const double answer =
        order.check ? wrong_sums(reducer, control, order.floats) : seconds_of(reducer, order);
    if (control.rank > 0) continue;
    std::printf("%.9g\n", answer);
    std::fflush(stdout);
  }
  for (const int out : control.out) close(out);  // which ends the others
}

}  // namespace bench
