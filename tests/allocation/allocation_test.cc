// A step allocates nothing, once it has run. A program of its own, because it replaces malloc.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>

#include "collective/merge_plan.h"
#include "engine/executor.h"
#include "graph/graph.h"
#include "starling/starling.h"
#include "strategy/single.h"
#include "train/state.h"
#include "train/step.h"

extern "C" void* __libc_malloc(size_t size);

namespace {
std::atomic<bool> counting{false};
std::atomic<int> allocations{0};
}  // namespace

// Everything that allocates in this process, oneDNN included, comes through here or through
// operator new, which calls it.
extern "C" void* malloc(size_t size) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(size);
}

namespace starling {
namespace {

int allocations_of_steps(const Model& model, Optimizer optimizer, int lanes) {
  const data::Dataset data =
      data::synthetic({.samples = 64, .features = model.input_shape(), .classes = 10}).cached();
  TrainState state(model.graph(), optimizer, 1);
  Executor executor(model.graph(), softmax_cross_entropy(), {accuracy()}, state.space,
                    state.moments, state.weights.data(),
                    {.lanes = lanes, .shards = 4, .micro_batch = 4});
  SingleStrategy strategy(executor, state.space.blocks().size());
  TrainStep step(executor, strategy, state, optimizer, NonFinite::kStop);
  std::vector<uint64_t> ids(64);
  for (uint64_t i = 0; i < ids.size(); ++i) ids[i] = i;
  const RowReader reader = [&](std::span<const uint64_t> rows, float* x, float* y) {
    data.read(rows, x, y);
  };
  // Steps of one batch and of two, of which the second is shorter.
  const StepSize two{.samples = 64, .batch = 40};
  const BatchRows batch{.samples = ids, .reader = &reader};
  BatchRows first = batch, second = batch;
  first.samples = std::span(ids).first(40);
  second.samples = std::span(ids).subspan(40);
  first.step = second.step = two;
  second.index = 1;
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      step.run(batch, 1e-3, {});
      step.add(first);
      step.add(second);
      step.finish(1e-3, {});
    }
  };
  run(3);
  allocations = 0;
  counting = true;
  run(10);
  counting = false;
  return allocations;
}

TEST(Allocation, AStepOfAnMlpAllocatesNothing) {
  const Sequential model(
      {64}, {dense(40, relu), dropout(0.5f), dense(300, gelu), batch_norm(), dense(10)});
  for (const int lanes : {1, 2}) {
    EXPECT_EQ(allocations_of_steps(model, adam(1e-3), lanes), 0) << lanes << " lanes";
    EXPECT_EQ(allocations_of_steps(model, momentum(1e-3, {.clip_norm = 1.0}), lanes), 0)
        << lanes << " lanes";
  }
}

// oneDNN keeps the arguments of each call in a map of its own, so convolutions are not free of
// small allocations; nothing else in the step allocates.
TEST(Allocation, AStepOfACnnAllocatesOnlyInsideOneDnn) {
  const auto without = [](const Layer& layer) {
    return Sequential({12, 12, 1}, {layer, max_pool2d(2), batch_norm(), relu, average_pool2d(2),
                                    flatten(), dense(10)});
  };
  const int one = allocations_of_steps(without(conv2d(8, 3, relu)), adam(1e-3), 1);
  EXPECT_EQ(allocations_of_steps(without(relu), adam(1e-3), 1), 0);
  // 30 batches of 4 shards: forward, packing, weight gradient and its layout. About a dozen each.
  EXPECT_LT(one, 30 * 4 * 4 * 16);
}

// Parts of workers that do not divide the tree evenly.
TEST(Allocation, SumsOfUnevenPartsAllocateOnce) {
  const MergePlan plan({{0, 1}, {1, 2}, {2, 4}, {4, 5}, {5, 6}});
  ASSERT_FALSE(plan.is_canonical());
  std::vector<float> values(5 * 4096, 1.0f), sum(4096);
  std::array<const float*, 5> parts;
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = values.data() + i * 4096;
  plan.sum(parts, 4096, sum.data());
  allocations = 0;
  counting = true;
  for (int i = 0; i < 10; ++i) plan.sum(parts, 4096, sum.data());
  counting = false;
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(sum[4095], 5.0f);
}

}  // namespace
}  // namespace starling
