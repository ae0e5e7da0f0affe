#include "engine/lanes.h"

#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include "base/float_flags.h"

namespace starling {
namespace {

// About 50 µs: longer than the gaps between the parts of a step, shorter than a time slice.
constexpr int kSpins = 2000;

// One OpenMP thread, and numbers too small for full precision taken as zero: they are of no use in
// training and cost a hundred cycles each. Both are part of the numbers, so every lane has them,
// and the caller's thread gets its own settings back.
class LaneSettings {
 public:
  LaneSettings() : threads_(omp_get_max_threads()), control_(_mm_getcsr()) {
    omp_set_num_threads(1);
    constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
    _mm_setcsr(control_ | kFlushToZero | kDenormalsAreZero);
    clear_arithmetic_flags();
  }
  ~LaneSettings() {
    _mm_setcsr(control_);
    omp_set_num_threads(threads_);
  }
  LaneSettings(const LaneSettings&) = delete;
  LaneSettings& operator=(const LaneSettings&) = delete;

 private:
  const int threads_;
  const unsigned control_;
};

// When lanes take all cores, each has its own from the start: a scheduler that wakes one beside
// another takes milliseconds to part them. With cores to spare it finds better places than we.
void pin_to_own_core(int lane, int lanes) {
  cpu_set_t all, own;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) != lanes) return;
  CPU_ZERO(&own);
  for (int cpu = 0, number = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && number++ == lane) CPU_SET(cpu, &own);
  }
  sched_setaffinity(0, sizeof own, &own);  // a wish: without it all still works
}

// Waits until `ready` holds; `word` changes when it may.
template <typename T, typename Ready>
void wait_for(const std::atomic<T>& word, bool spin, Ready ready) {
  if (spin) {
    for (int i = 0; i < kSpins; ++i) {
      if (ready(word.load(std::memory_order_acquire))) return;
      _mm_pause();
    }
  }
  for (T now = word.load(std::memory_order_acquire); !ready(now);
       now = word.load(std::memory_order_acquire)) {
    word.wait(now, std::memory_order_acquire);
  }
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

Lanes::Lanes(int count)
    : count_(count), spin_(count <= available_cores()), failures_(static_cast<size_t>(count)) {
  for (int lane = 1; lane < count; ++lane) threads_.emplace_back([this, lane] { loop(lane); });
}

Lanes::~Lanes() {
  ending_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
}

void Lanes::run(FunctionRef<void(int)> work) {
  const LaneSettings settings;  // the caller's thread is lane 0 for the length of this call
  work_ = &work;
  raised_.store(false, std::memory_order_relaxed);
  if (count_ > 1) {
    unfinished_.store(count_ - 1, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
  }
  call(0);
  if (count_ > 1) wait_for(unfinished_, spin_, [](int unfinished) { return unfinished == 0; });
  for (std::exception_ptr& failure : failures_) {
    if (!failure) continue;
    const std::exception_ptr first = failure;
    for (std::exception_ptr& each : failures_) each = nullptr;
    std::rethrow_exception(first);
  }
}

void Lanes::loop(int lane) {
  const LaneSettings settings;
  pin_to_own_core(lane, count_);
  uint32_t seen = 0;
  while (true) {
    wait_for(round_, spin_, [&](uint32_t round) { return round != seen; });
    ++seen;
    if (ending_) return;
    clear_arithmetic_flags();
    call(lane);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

void Lanes::call(int lane) {
  try {
    (*work_)(lane);
  } catch (...) {
    failures_[static_cast<size_t>(lane)] = std::current_exception();
  }
  if (arithmetic_raised()) raised_.store(true, std::memory_order_relaxed);
}

}  // namespace starling
