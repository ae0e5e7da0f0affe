#include "compare/compare_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/atomic_file_testing.h"
#include "compare/compare_testing.h"
#include "error_of.h"

namespace starling {
namespace {

using testing::HasSubstr;

// Files of the same name may be longer by now, and trials of both can't be compared.
TEST(CompareFolder, IsForOneJobAndItsData) {
  const TemporaryFolder folder;
  ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}}, 2);
  plan.data = "400 samples to train on";
  CompareFolder(folder.path()).take(plan, false);
  CompareFolder(folder.path()).take(plan, false);
  plan.data = "500 samples to train on";
  EXPECT_THAT(refusal([&] { CompareFolder(folder.path()).take(plan, false); }),
              HasSubstr("data or version"));
  CompareFolder(folder.path()).take(plan, true);
  plan.job.training.epochs = 7;
  EXPECT_THAT(refusal([&] { CompareFolder(folder.path()).take(plan, false); }),
              HasSubstr("another job"));
}

}  // namespace
}  // namespace starling
