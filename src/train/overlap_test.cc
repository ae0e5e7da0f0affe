// Buckets of gradients that are on their way while the rest is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <functional>
#include <memory>

#include "error_of.h"
#include "graph/graph.h"
#include "starling/starling.h"
#include "strategy/all_reduce_messages.h"
#include "strategy/make_strategy.h"
#include "strategy/sharded.h"
#include "tensor/weights_hash.h"
#include "train/step.h"
#include "train/workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// y = x · scale: the first layer, so that its backward pass is the last, and does what the test
// wants just before the gradient is complete.
class GateOp : public Operator {
 public:
  explicit GateOp(std::function<void()> pass) : pass_(std::move(pass)) {}
  std::string kind() const override { return "gate"; }
  Shape infer(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::vector<ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return {{.name = "scale", .shape = {inputs[0].back()}, .initializer = "ones"}};
  }
  void forward(const ForwardArgs& args) const override {
    const int64_t channels = args.input_shapes[0].back();
    for (int64_t i = 0; i < args.context.rows * channels; ++i)
      args.output[i] = args.inputs[0][i] * args.parameters[0][i % channels];
  }
  void backward(const BackwardArgs& args) const override {
    pass_();
    const int64_t channels = args.input_shapes[0].back();
    for (int64_t i = 0; i < args.context.rows * channels; ++i)
      args.grad_parameters[0][i % channels] += args.grad_output[i] * args.inputs[0][i];
  }

 private:
  const std::function<void()> pass_;
};

// About 800 KB of parameters: four buckets.
Model gated(std::function<void()> pass) {
  return Sequential({40}, {std::make_shared<GateOp>(std::move(pass)), dense(300, relu),
                           dense(300, relu), dense(300, tanh), dense(10)});
}

struct WorkerSetting {
  int lanes = 1;
  int shards = 2;
  StepSize step = StepSize::of_batch(12);
  bool overlap = true;
  bool sharded = false;
};

// One worker and its steps.
class Worker {
 public:
  Worker(
      World& world, const WorkerSetting& setting,
      std::function<void(Worker&)> pass = [](Worker&) {})
      : model_(gated([this, pass] { pass(*this); })),
        setting_(setting),
        state_(model_.graph(), optimizer_, 1),
        executor_(model_.graph(), softmax_cross_entropy(), {}, state_.space, state_.moments,
                  state_.weights.data(), {.lanes = setting.lanes, .shards = setting.shards}),
        strategy_(strategy_in(world)),
        step_(executor_, *strategy_, state_, optimizer_, NonFinite::kStop) {}

  void step() {
    std::vector<uint64_t> ids(static_cast<size_t>(setting_.step.batch));
    for (int64_t batch = 0; batch < setting_.step.batches(); ++batch) {
      for (size_t i = 0; i < ids.size(); ++i)
        ids[i] = static_cast<uint64_t>(batch * setting_.step.batch) + i;
      step_.add(
          {.samples = std::span(ids).first(static_cast<size_t>(setting_.step.batch_size(batch))),
           .reader = &reader_,
           .step = setting_.step,
           .index = batch});
    }
    step_.finish(0.1, {});
  }

  const AllReduceMessages& strategy() const { return *strategy_; }
  std::string hash() const { return weights_sha256(state_.space, state_.weights.span()); }
  size_t buckets() const { return state_.space.buckets(size_t{256} << 10).size(); }

 private:
  std::unique_ptr<AllReduceMessages> strategy_in(World& world) {
    const auto placement = place_workers(setting_.shards, computing(world));
    if (setting_.sharded)
      return std::make_unique<Sharded>(
          world, executor_, state_.space, placement,
          Sharded::Options{.replicas = 0, .overlap = setting_.overlap});
    return std::make_unique<AllReduceMessages>(
        world, executor_, state_.space, placement,
        AllReduceMessagesOptions{.overlap = setting_.overlap});
  }

  const data::Dataset data_ =
      data::synthetic({.samples = 64, .features = {40}, .classes = 10}).cached();
  const RowReader reader_ = [this](std::span<const uint64_t> rows, float* x, float* y) {
    data_.read(rows, x, y);
  };
  const Optimizer optimizer_ = sgd(0.1);
  const Model model_;
  const WorkerSetting setting_;
  TrainState state_;
  Executor executor_;
  const std::unique_ptr<AllReduceMessages> strategy_;
  TrainStep step_;
};

// Waits until a bucket has begun its way; false when that takes too long.
bool wait_for_bucket(const Worker& worker) {
  const auto end = Clock::now() + std::chrono::seconds(20);
  while (worker.strategy().buckets_begun() == 0) {
    if (Clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// `all_reduce`, and `sharded`, whose buckets go to their owners.
class OverlapOf : public testing::TestWithParam<bool> {};

// As many stacks as lanes: all complete the first bucket before they come to the gate.
TEST_P(OverlapOf, BucketsBeginBeforeTheBackwardPassEnds) {
  for (const int lanes : {1, 2}) {
    expect_no_errors(run_workers(2, [&](const std::shared_ptr<World>& world) {
      std::atomic<int> passed{0};
      Worker worker(*world, {.lanes = lanes, .shards = 2 * lanes, .sharded = GetParam()},
                    [&](Worker& self) {
                      EXPECT_TRUE(wait_for_bucket(self));
                      ++passed;
                    });
      worker.step();
      EXPECT_EQ(passed, lanes);
      EXPECT_EQ(worker.strategy().buckets_begun(), worker.buckets());
      EXPECT_GT(worker.strategy().seconds().hidden, 0);
    }));
  }
}

TEST_P(OverlapOf, ABucketIsCompleteInTheLastStackOfTheLastBatch) {
  expect_no_errors(run_workers(2, [](const std::shared_ptr<World>& world) {
    int passed = 0;
    Worker worker(*world,
                  {.shards = 4, .step = {.samples = 24, .batch = 12}, .sharded = GetParam()},
                  [&](Worker& self) {
                    if (++passed < 4) {
                      EXPECT_EQ(self.strategy().buckets_begun(), 0u) << "stack " << passed;
                    } else {
                      EXPECT_TRUE(wait_for_bucket(self));
                    }
                  });
    worker.step();
    EXPECT_EQ(passed, 4);
  }));
}

TEST_P(OverlapOf, CanBeSwitchedOff) {
  expect_no_errors(run_workers(2, [](const std::shared_ptr<World>& world) {
    Worker worker(*world, {.overlap = false, .sharded = GetParam()},
                  [](Worker& self) { EXPECT_EQ(self.strategy().buckets_begun(), 0u); });
    worker.step();
    EXPECT_EQ(worker.strategy().buckets_begun(), worker.buckets());
    EXPECT_EQ(worker.strategy().seconds().hidden, 0);
    EXPECT_GT(worker.strategy().seconds().communication, 0);
  }));
}

INSTANTIATE_TEST_SUITE_P(All, OverlapOf, testing::Bool(),
                         [](const auto& way) { return way.param ? "sharded" : "all_reduce"; });

// In a batch of 3 the first of 4 workers has no sample, in one of 2 samples two have none. The bits
// of `sharded` are those of `all_reduce`, too.
TEST(Overlap, HasTheBitsOfOneExchangeAtTheEnd) {
  for (const StepSize& step :
       {StepSize::of_batch(12), StepSize::of_batch(2), StepSize{.samples = 13, .batch = 10}}) {
    std::mutex mutex;
    std::vector<std::string> hashes;
    for (const int workers : {2, 3, 4}) {
      for (const int lanes : {1, 2}) {
        for (const bool sharded : {false, true}) {
          for (const bool overlap : {true, false}) {
            const WorkerSetting setting{
                .lanes = lanes, .shards = 16, .step = step, .overlap = overlap, .sharded = sharded};
            expect_no_errors(run_workers(workers, [&](const std::shared_ptr<World>& world) {
              Worker worker(*world, setting);
              for (int i = 0; i < 3; ++i) worker.step();
              const std::lock_guard lock(mutex);
              hashes.push_back(worker.hash());
            }));
          }
        }
      }
    }
    EXPECT_EQ(hashes.size(), 9u * 8);
    EXPECT_EQ(hashes, std::vector(hashes.size(), hashes[0]));
  }
}

TEST(Overlap, AStepThatThrowsEndsOnAllWorkers) {
  const auto errors = run_workers(2, [](const std::shared_ptr<World>& world) {
    Worker worker(*world, {}, [&](Worker& self) {
      EXPECT_TRUE(wait_for_bucket(self));
      if (world->rank() == 1) throw run_error("the gate is shut", "open it");
    });
    worker.step();
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("all_reduce step 1, worker 0"), HasSubstr("peer 1")));
  EXPECT_EQ(errors[1], "the gate is shut");
}

// The victim's last bucket is not complete when it dies, so the survivor can't be done.
TEST(Overlap, AWorkerKilledMeanwhileIsNamed) {
  const WorkerPlaces places(2);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang ends as a failure
    World world(places.of(1));
    Worker worker(world, {}, [](Worker& self) {
      if (wait_for_bucket(self)) raise(SIGKILL);
    });
    worker.step();
    _exit(1);
  }
  int status = 0;
  const auto survive = [&] {
    World world(places.of(0));
    Worker worker(world, {}, [&](Worker& self) {
      EXPECT_TRUE(wait_for_bucket(self));
      waitpid(child, &status, 0);  // it dies while this worker computes
    });
    worker.step();
  };
  const auto begin = Clock::now();
  EXPECT_THAT(error_of(survive).what(),
              AllOf(HasSubstr("all_reduce step 1, worker 0"), HasSubstr("peer 1")));
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));  // well before the deadline of 60
}

}  // namespace
}  // namespace starling
