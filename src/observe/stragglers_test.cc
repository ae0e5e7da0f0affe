#include "observe/stragglers.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

using Places = std::vector<size_t>;
const std::vector<int> kWorkers = {0, 2, 7};

TEST(Stragglers, MostAreTheLowerMedianOfWhatIsKnown) {
  EXPECT_EQ(usual_seconds({}), 0);
  EXPECT_EQ(usual_seconds(std::vector<double>{0, 0}), 0);
  EXPECT_EQ(usual_seconds(std::vector<double>{3, 2}), 2);
  EXPECT_EQ(usual_seconds(std::vector<double>{9, 0, 1, 3, 2}), 2);
}

TEST(StragglerWatch, NamesAWorkerOnceAfterAWhile) {
  StragglerWatch watch;
  for (int look = 0; look < 20; ++look) {
    const Places found = watch.look(kWorkers, std::vector<double>{1, 1, 4}, 10 + 0.3 * look);
    EXPECT_EQ(found, look == 4 ? Places{2} : Places()) << look;
  }
}

TEST(StragglerWatch, ManyLooksInAMomentAreNoWhile) {
  StragglerWatch watch;
  for (int look = 0; look < 1000; ++look)
    EXPECT_EQ(watch.look(kWorkers, std::vector<double>{1, 1, 4}, 1e-4 * look), Places());
}

TEST(StragglerWatch, AFewLooksAreNoWhile) {
  StragglerWatch watch;
  for (int look = 0; look < 3; ++look)
    EXPECT_EQ(watch.look(kWorkers, std::vector<double>{1, 1, 4}, 100.0 * look), Places());
}

TEST(StragglerWatch, WhoIsAsFastAsTheOthersInBetweenIsNotNamed) {
  StragglerWatch watch;
  for (int look = 0; look < 30; ++look) {
    const double last = look % 3 == 0 ? 1 : 4;
    EXPECT_EQ(watch.look(kWorkers, std::vector<double>{1, 1, last}, look), Places());
  }
}

TEST(StragglerWatch, KnowsWorkersByName) {
  StragglerWatch watch;
  for (int look = 0; look < 10; ++look) watch.look(kWorkers, std::vector<double>{1, 1, 4}, look);
  for (int look = 0; look < 10; ++look) {  // worker 2 was lost
    EXPECT_EQ(watch.look(std::vector<int>{0, 7}, std::vector<double>{1, 4}, 10 + look), Places());
  }
}

}  // namespace
}  // namespace starling
