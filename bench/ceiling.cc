// The ceiling of this machine, measured beside every row: how many f32 operations its cores can
// do, and how fast memory can be copied. One thread per core that the process may use.
//
//   peak    answers GFLOP/s: independent multiply-adds in registers, nothing else
//   copy    answers GB/s copied: memcpy of buffers far larger than the caches, bytes counted once
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

// As wide as the machine's registers: this file is compiled for the machine it runs on.
#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));

constexpr int kChains = 12;  // multiply-adds under way at once: latency × units, with room
constexpr double kSeconds = 0.05;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The amount that `work(i)` returns, added up over repeated calls on all cores, per second.
double rate(int cores, const std::function<double(int core)>& work) {
  std::atomic<int> ready{0};
  std::vector<double> rates(static_cast<size_t>(cores));
  std::vector<std::thread> threads;
  for (int core = 0; core < cores; ++core) {
    threads.emplace_back([&, core] {
      work(core);  // touches its memory
      ++ready;
      while (ready < cores) std::this_thread::yield();
      double amount = 0, seconds = 0;
      while (seconds < kSeconds) seconds += seconds_of([&] { amount += work(core); });
      rates[static_cast<size_t>(core)] = amount / seconds;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double total = 0;
  for (double r : rates) total += r;
  return total;
}

double multiply_adds() {
  constexpr int kRounds = 20000;
  Vector sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = Vector{} + static_cast<float>(c);
  Vector a = Vector{} + 0.999f, b = Vector{} + 0.001f;
  for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * a + b;
    asm volatile("" : "+x"(a), "+x"(b));  // or the compiler would see through the loop
  }
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(sums[c]));
  return 2.0 * kRounds * kChains * kLanes;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

int main() {
  constexpr size_t kBytes = size_t{64} << 20;
  const int cores = usable_cores();
  std::vector<std::vector<char>> from(static_cast<size_t>(cores), std::vector<char>(kBytes, 1)),
      to = from;
  for (std::string command; std::getline(std::cin, command);) {
    double result = 0;
    if (command == "peak") {
      result = rate(cores, [](int) { return multiply_adds(); }) / 1e9;
    } else if (command == "copy") {
      result = rate(cores,
                    [&](int core) {
                      const size_t i = static_cast<size_t>(core);
                      std::memcpy(to[i].data(), from[i].data(), kBytes);
                      asm volatile("" : : "r"(to[i].data()) : "memory");
                      return static_cast<double>(kBytes);
                    }) /
               1e9;
    } else {
      std::fprintf(stderr, "error: unknown command: %s\n", command.c_str());
      return 1;
    }
    std::printf("%.6g\n", result);
    std::fflush(stdout);
  }
  return 0;
}
