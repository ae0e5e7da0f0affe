// The yardstick of all-reduce: a bare in-place sum over two or more shared arrays. Each rank sums
// its part of all arrays and stores it to all of them; around that are only two meetings at plain
// counters, spun on. This file is fixed and uses nothing of ours, so that the yardstick does not
// move with what it measures; bench/run compares it with memcpy, which moves as many bytes.
//   bare_sum --world 2
//   bare_sum --world 2 --only read    each rank reads its part of all arrays, from beginning to
//                                     end, and stores nothing: the floor of sums that do so
#include <sys/mman.h>

#include <atomic>
#include <new>

#include "all_reduce_server.h"

namespace {

#if defined(__AVX512F__)
constexpr size_t kLanes = 16;
#else
constexpr size_t kLanes = 8;
#endif
typedef float Vector __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

constexpr size_t kFloatsMost = size_t{32} << 20;  // 128 MiB
constexpr size_t kLineFloats = 16;

struct Line {
  alignas(64) std::atomic<uint64_t> count;
};

class BareSum final : public bench::AllReducer {
 public:
  BareSum(const bench::Control& control, char* memory, bool only_reads)
      : only_reads_(only_reads),
        rank_(static_cast<size_t>(control.rank)),
        world_(static_cast<size_t>(control.world)),
        lines_(reinterpret_cast<Line*>(memory)),
        arrays_(reinterpret_cast<float*>(memory + 4096)) {}

  static size_t bytes(int world) {
    return 4096 + static_cast<size_t>(world) * kFloatsMost * sizeof(float);
  }

  void prepare(size_t floats) override {
    if (floats > kFloatsMost) throw std::runtime_error("more than 128 MiB");
    const size_t lines = (floats + kLineFloats - 1) / kLineFloats;
    begin_ = std::min(floats, lines * rank_ / world_ * kLineFloats);
    end_ = std::min(floats, lines * (rank_ + 1) / world_ * kLineFloats);
  }
  float* array() override { return at(rank_); }

  void all_reduce() override {
    meet();
    if (only_reads_) {
      for (size_t r = 0; r < world_; ++r) read(at(r));
    } else if (world_ == 2) {
      sum_two(at(0), at(1));
    } else {
      sum_many();
    }
    meet();
  }

 private:
  float* at(size_t rank) const { return arrays_ + rank * kFloatsMost; }

  void meet() {
    lines_[rank_].count.store(++count_, std::memory_order_release);
    for (size_t other = 0; other < world_; ++other) {
      while (lines_[other].count.load(std::memory_order_acquire) < count_) {
        if (world_ > 2) sched_yield();  // there may be fewer cores
      }
    }
  }

  void sum_two(float* __restrict a, float* __restrict b) const {
    size_t i = begin_;
    for (; i + kLanes <= end_; i += kLanes) {
      const Vector sum =
          *reinterpret_cast<const Vector*>(a + i) + *reinterpret_cast<const Vector*>(b + i);
      *reinterpret_cast<Vector*>(a + i) = sum;
      *reinterpret_cast<Vector*>(b + i) = sum;
    }
    for (; i < end_; ++i) a[i] = b[i] = a[i] + b[i];
  }

  // Eight sums, so that none of them waits for itself.
  void read(const float* a) const {
    constexpr size_t kSums = 8;
    Vector sums[kSums] = {};
    for (size_t i = begin_; i + kSums * kLanes <= end_; i += kSums * kLanes) {
      for (size_t k = 0; k < kSums; ++k)
        sums[k] += *reinterpret_cast<const Vector*>(a + i + k * kLanes);
    }
    for (const Vector& sum : sums) asm volatile("" : : "m"(sum));  // is wanted
  }

  void sum_many() const {
    for (size_t i = begin_; i < end_; ++i) {
      float sum = 0;
      for (size_t r = 0; r < world_; ++r) sum += at(r)[i];
      for (size_t r = 0; r < world_; ++r) at(r)[i] = sum;
    }
  }

  const bool only_reads_;
  const size_t rank_, world_;
  Line* const lines_;
  float* const arrays_;
  size_t begin_ = 0, end_ = 0;
  uint64_t count_ = 0;
};

void run(const bench::Options& options) {
  const int world = static_cast<int>(options.number("world", 2));
  void* const memory = mmap(nullptr, BareSum::bytes(world), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  const bench::Control control = bench::fork_ranks(world);
  BareSum reducer(control, static_cast<char*>(memory), options.text("only", "") == "read");
  bench::serve(reducer, control);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
