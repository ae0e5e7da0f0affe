#include "cluster/faults.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(Faults, SlowTheWorkerInTheStepsOfThePlan) {
  const Faults faults(
      {{.action = Fault::Action::kSlow, .worker = 1, .step = 3, .factor = 4, .steps = 2},
       {.action = Fault::Action::kSlow, .worker = Fault::kEveryWorker, .step = 4, .factor = 2}});
  const auto of_worker = [&](int worker) {
    std::vector<double> found;
    for (uint64_t step = 2; step < 7; ++step) found.push_back(faults.slowness(worker, step));
    return found;
  };
  EXPECT_EQ(of_worker(1), (std::vector<double>{1, 4, 4, 2, 2}));
  EXPECT_EQ(of_worker(0), (std::vector<double>{1, 1, 2, 2, 2}));
}

TEST(Faults, SlowNobodyWhoIsToDie) {
  const Faults faults({{.worker = 0, .point = FaultPoint::kResults, .factor = 4}});
  EXPECT_EQ(faults.slowness(0, 1), 1);
}

}  // namespace
}  // namespace starling
