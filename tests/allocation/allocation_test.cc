// A step allocates nothing, once it has run. A program of its own, because it replaces malloc and
// its relatives.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <thread>

#include "cluster/world.h"
#include "collective/merge_plan.h"
#include "engine/executor.h"
#include "engine/lowering.h"
#include "engine/own_conv.h"
#include "graph/graph.h"
#include "starling/starling.h"
#include "strategy/make_strategy.h"
#include "train/state.h"
#include "train/step.h"

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};

void count_allocation() {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
}
}  // namespace

// Everything that allocates in this process, oneDNN included, comes through here or through
// operator new, which calls these.
extern "C" {
void* malloc(size_t size) {
  count_allocation();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  count_allocation();
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  count_allocation();
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) {
  count_allocation();
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  count_allocation();
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
}
}

namespace starling {
namespace {

int allocations_of(const std::function<void()>& work) {
  allocations = 0;
  counting = true;
  work();
  counting = false;
  return allocations;
}

TEST(Allocation, IsSeenWhicheverWayItGoes) {
  void* memory = nullptr;
  EXPECT_EQ(allocations_of([&] { memory = std::malloc(8); }), 1);
  EXPECT_EQ(allocations_of([&] { memory = std::realloc(memory, 1 << 12); }), 1);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { memory = std::calloc(4, 8); }), 1);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { memory = std::aligned_alloc(64, 64); }), 1);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { memory = memalign(64, 64); }), 1);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { ASSERT_EQ(posix_memalign(&memory, 64, 64), 0); }), 1);
  std::free(memory);
  EXPECT_EQ(allocations_of([&] { delete new int(1); }), 1);
  EXPECT_EQ(allocations_of([] { Buffer<float>(100); }), 1);
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  EXPECT_EQ(allocations_of([&] { memory = mmap(nullptr, 4096, PROT_READ, flags, -1, 0); }), 1);
  munmap(memory, 4096);
}

struct Steps {
  int lanes = 1;
  Precision precision = Precision::kF32;
  int workers = 1;  // threads, that share memory as processes would
};

// A worker's steps of one batch, and of two, of which the second is shorter.
void run_steps(const Model& model, const Optimizer& optimizer, const Steps& steps, World& world,
               const std::function<void(const std::function<void(int times)>& run)>& measure) {
  const data::Dataset data =
      data::synthetic({.samples = 64, .features = model.input_shape(), .classes = 10}).cached();
  TrainState state(model.graph(), optimizer, 1, world, {.lanes = steps.lanes});
  Executor executor(
      model.graph(), softmax_cross_entropy(), {accuracy()}, state.space, state.moments,
      state.weights.data(),
      {.lanes = steps.lanes, .shards = 4, .micro_batch = 4, .precision = steps.precision});
  const StepSize one = StepSize::of_batch(64), two{.samples = 64, .batch = 40};
  const std::unique_ptr<Strategy> strategy =
      make_strategy({}, world, executor, state.space, {one, two});
  TrainStep step(executor, *strategy, state, optimizer, NonFinite::kStop);
  std::vector<uint64_t> ids(64);
  for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const RowReader reader = [&](std::span<const uint64_t> rows, float* x, float* y) {
    data.read(rows, x, y);
  };
  const BatchRows batch{.samples = ids, .reader = &reader};
  BatchRows first = batch, second = batch;
  first.samples = std::span(ids).first(40);
  second.samples = std::span(ids).subspan(40);
  first.step = second.step = two;
  second.index = 1;
  measure([&](int times) {
    for (int i = 0; i < times; ++i) {
      step.run(batch, 1e-3, {});
      step.add(first);
      step.add(second);
      step.finish(1e-3, {});
    }
  });
}

// Of all workers, in 10 times 2 steps.
int allocations_of_steps(const Model& model, const Optimizer& optimizer, const Steps& steps) {
  if (steps.workers == 1) {
    World alone;
    int result = -1;
    run_steps(model, optimizer, steps, alone, [&](const auto& run) {
      run(3);
      result = allocations_of([&] { run(10); });
    });
    return result;
  }
  const SharedSegment segment = ShmFabric::make_segment({.world = steps.workers});
  std::barrier<> all(steps.workers);
  std::vector<std::jthread> workers;
  for (int rank = 0; rank < steps.workers; ++rank) {
    workers.emplace_back([&, rank] {
      World world({.rank = rank, .workers = steps.workers, .descriptor = segment.fd()});
      run_steps(model, optimizer, steps, world, [&](const auto& run) {
        run(3);
        all.arrive_and_wait();
        if (rank == 0) allocations = 0;
        counting = true;
        all.arrive_and_wait();
        run(10);
        all.arrive_and_wait();
        counting = false;
      });
    });
  }
  workers.clear();  // joins
  return allocations;
}

// oneDNN copies the arguments of each call into a map of its own: about eight small allocations.
// There are 36 micro-batches of 4 rows or fewer in the two steps, so at most so many with `calls`.
int most_inside_onednn(int calls) { return 10 * 36 * calls * 8; }

const Sequential& mlp() {
  static const Sequential model(
      {64}, {dense(40, relu), dropout(0.5f), dense(300, gelu), batch_norm(), dense(10)});
  return model;
}

TEST(Allocation, AStepOfAnMlpAllocatesNothing) {
  for (const int lanes : {1, 2}) {
    for (const Optimizer& optimizer : {adam(1e-3), momentum(1e-3, {.clip_norm = 1.0})}) {
      EXPECT_EQ(allocations_of_steps(mlp(), optimizer, {.lanes = lanes}), 0) << lanes << " lanes";
    }
  }
}

TEST(Allocation, AStepInBf16AllocatesNothing) {
  for (const int lanes : {1, 2}) {
    const Steps steps{.lanes = lanes, .precision = Precision::kBf16};
    EXPECT_EQ(allocations_of_steps(mlp(), adam(1e-3), steps), 0) << lanes << " lanes";
  }
}

TEST(Allocation, AStepOfTwoWorkersAllocatesNothing) {
  for (const int lanes : {1, 2}) {
    for (const Optimizer& optimizer : {adam(1e-3), momentum(1e-3, {.clip_norm = 1.0})}) {
      const Steps steps{.lanes = lanes, .workers = 2};
      EXPECT_EQ(allocations_of_steps(mlp(), optimizer, steps), 0) << lanes << " lanes";
    }
  }
}

// Its convolutions are our own: one is fused with its pool, one goes by Winograd.
TEST(Allocation, AStepOfACnnAllocatesNothing) {
  const Sequential model({12, 12, 1}, {conv2d(16, 3, relu), max_pool2d(2), batch_norm(), relu,
                                       conv2d(16, 3, relu, {.padding = same}), average_pool2d(2),
                                       flatten(), dense(10)});
  for (const int workers : {1, 2}) {
    EXPECT_EQ(allocations_of_steps(model, adam(1e-3), {.workers = workers}), 0)
        << workers << " workers";
  }
}

TEST(Allocation, AConvolutionAllocatesOnlyInsideOneDnn) {
  const Sequential model({12, 12, 4}, {conv2d(6, 3, relu), flatten(), dense(10)});
  const int found = allocations_of_steps(model, adam(1e-3), {});
  // Forward and weight gradient; on lesser CPUs it brings images into layouts of its own, too.
  EXPECT_LE(found, most_inside_onednn(4));
  EXPECT_GT(found, 0) << "the exception in ARCHITECTURE.md is no more";
}

// Parts of workers that do not divide the tree evenly.
TEST(Allocation, SumsOfUnevenPartsAllocateOnce) {
  const MergePlan plan({{0, 1}, {1, 2}, {2, 4}, {4, 5}, {5, 6}});
  ASSERT_FALSE(plan.is_canonical());
  std::vector<float> values(5 * 4096, 1.0f), sum(4096);
  std::array<const float*, 5> parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = values.data() + i * 4096;
  plan.sum(parts, 4096, sum.data());
  EXPECT_EQ(allocations_of([&] {
              for (int i = 0; i < 10; ++i) plan.sum(parts, 4096, sum.data());
            }),
            0);
  EXPECT_EQ(sum[4095], 5.0f);
}

}  // namespace
}  // namespace starling
