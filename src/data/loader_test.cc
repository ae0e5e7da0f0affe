#include "data/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <memory>

#include "data/ledger.h"
#include "data/test_files.h"

namespace starling::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The same samples, read ahead by the loader's thread.
Dataset slow(const Dataset& data) {
  return data.map([](const Sample&) {});
}

// What a batch held, kept beyond its life.
struct Copy {
  uint64_t step;
  std::vector<uint64_t> ids;
  std::vector<float> labels;
  friend bool operator==(const Copy&, const Copy&) = default;
};

Copy copy(const Batch& batch, const Dataset& data) {
  Copy result{batch.step_in_epoch, {batch.ids.begin(), batch.ids.end()}, {}};
  result.labels.resize(batch.ids.size());
  if (batch.labels != nullptr) {
    std::copy_n(batch.labels, batch.ids.size(), result.labels.begin());
  } else {
    std::vector<float> features(batch.ids.size());
    data.read(batch.ids, features.data(), result.labels.data());
  }
  return result;
}

std::vector<Copy> epoch(Loader& loader, const Dataset& data, uint32_t number, uint64_t first = 0) {
  loader.start_epoch(number, first);
  std::vector<Copy> batches;
  for (uint64_t step = first; step < loader.steps_per_epoch(); ++step) {
    batches.push_back(copy(loader.next(), data));
  }
  return batches;
}

// Parametrised over cheap data sets and those that a thread reads ahead.
class LoaderTest : public testing::TestWithParam<bool> {
 protected:
  Dataset data(uint64_t size) const { return GetParam() ? numbered(size) : slow(numbered(size)); }
};

TEST_P(LoaderTest, EverySampleIsUsedOncePerEpoch) {
  for (const uint64_t size : {1u, 7u, 8u, 9u, 1000u}) {
    const Dataset samples = data(size);
    Loader loader(samples, {.batch = 8, .seed = 3});
    Ledger ledger;
    for (uint32_t number = 0; number < 3; ++number) {
      ledger.begin(number, size);
      for (const Copy& batch : epoch(loader, samples, number)) ledger.mark(batch.ids);
      const LedgerEntry entry = ledger.finish();
      EXPECT_EQ(entry.samples, size);
      EXPECT_EQ(entry.unique, size);
      EXPECT_EQ(entry.missing, 0u);
    }
  }
}

TEST_P(LoaderTest, LabelsBelongToTheirSamples) {
  const Dataset samples = data(100);
  Loader loader(samples, {.batch = 16});
  for (const Copy& batch : epoch(loader, samples, 0)) {
    for (size_t i = 0; i < batch.ids.size(); ++i) {
      ASSERT_EQ(batch.labels[i], static_cast<float>(batch.ids[i]));
    }
  }
}

TEST_P(LoaderTest, TheLastBatchIsShortOrLeftOut) {
  const Dataset samples = data(10);
  Loader keeps(samples, {.batch = 4, .shuffle = false});
  EXPECT_EQ(keeps.steps_per_epoch(), 3u);
  EXPECT_THAT(epoch(keeps, samples, 0).back().ids, ElementsAre(8, 9));
  Loader drops(samples, {.batch = 4, .shuffle = false, .drop_last = true});
  EXPECT_EQ(drops.steps_per_epoch(), 2u);
  EXPECT_THAT(epoch(drops, samples, 0).back().ids, ElementsAre(4, 5, 6, 7));
}

TEST_P(LoaderTest, StartingInTheMiddleGivesTheSameBatches) {
  const Dataset samples = data(103);
  Loader loader(samples, {.batch = 10, .seed = 5});
  const std::vector<Copy> whole = epoch(loader, samples, 4);
  for (uint64_t first = 0; first <= loader.steps_per_epoch(); ++first) {
    const std::vector<Copy> rest = epoch(loader, samples, 4, first);
    EXPECT_EQ(rest, std::vector<Copy>(whole.begin() + static_cast<int>(first), whole.end()));
  }
}

TEST_P(LoaderTest, StartingAnewDropsWhatWasReadAhead) {
  const Dataset samples = data(100);
  Loader loader(samples, {.batch = 3, .seed = 5, .prefetch = 4});
  const std::vector<Copy> second = epoch(loader, samples, 2);
  for (int i = 0; i < 50; ++i) {
    loader.start_epoch(static_cast<uint32_t>(i % 3));
    if (i % 2 == 0) loader.next();
  }
  EXPECT_EQ(epoch(loader, samples, 2), second);
}

TEST_P(LoaderTest, EpochsAndSeedsHaveOrdersOfTheirOwn) {
  const Dataset samples = data(100);
  Loader one(samples, {.batch = 100, .seed = 1}), two(samples, {.batch = 100, .seed = 2});
  const auto order = epoch(one, samples, 0)[0].ids;
  EXPECT_NE(epoch(one, samples, 1)[0].ids, order);
  EXPECT_NE(epoch(two, samples, 0)[0].ids, order);
  EXPECT_EQ(epoch(one, samples, 0)[0].ids, order);
}

TEST_P(LoaderTest, BatchesLargerThanTheDataAreThatLarge) {
  const Dataset samples = data(5);
  Loader loader(samples, {.batch = uint64_t{1} << 60});
  EXPECT_EQ(loader.steps_per_epoch(), 1u);
  EXPECT_EQ(epoch(loader, samples, 0)[0].ids.size(), 5u);
}

TEST_P(LoaderTest, RefusesMisuse) {
  const Dataset samples = data(10);
  EXPECT_THROW(Loader(samples, {.batch = 0}), Error);
  EXPECT_THROW(Loader(samples, {.batch = 4, .prefetch = 0}), Error);
  EXPECT_THROW(Loader(samples, {.batch = 11, .drop_last = true}), Error);
  Loader loader(samples, {.batch = 4});
  EXPECT_THROW(loader.next(), Error);
  EXPECT_THROW(loader.start_epoch(0, 4), Error);
  epoch(loader, samples, 0);
  EXPECT_THROW(loader.next(), Error);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LoaderTest, testing::Bool(),
                         [](const auto& kind) { return kind.param ? "Cheap" : "ReadAhead"; });

TEST(Loader, CheapAndReadAheadGiveTheSameBatches) {
  const Dataset cheap = numbered(77), other = slow(cheap);
  Loader first(cheap, {.batch = 8, .seed = 2}), second(other, {.batch = 8, .seed = 2});
  EXPECT_EQ(epoch(first, cheap, 1), epoch(second, other, 1));
  first.start_epoch(0);
  EXPECT_EQ(first.next().features, nullptr);
}

TEST(Loader, ErrorsComeOutAtTheirBatchAndANewStartGoesOn) {
  const Dataset data = numbered(40).map([](const Sample& sample) {
    if (sample.id == 25) sample.features[0] = std::numeric_limits<float>::infinity();
  });
  Loader loader(data, {.batch = 10, .shuffle = false, .prefetch = 3});
  for (int again = 0; again < 2; ++again) {
    loader.start_epoch(0);
    EXPECT_EQ(loader.next().ids[0], 0u);
    EXPECT_EQ(loader.next().ids[0], 10u);
    EXPECT_THAT(refusal([&] { loader.next(); }), HasSubstr("sample 25"));
    EXPECT_THROW(loader.next(), Error);
    loader.start_epoch(0, 3);
    EXPECT_EQ(loader.next().ids[0], 30u);
  }
}

TEST(Loader, ReadsAsFarAheadAsAskedAndNoFurther) {
  std::atomic<uint64_t> reads = 0;
  const Dataset data = numbered(100).map([&](const Sample&) {
    ++reads;
    reads.notify_all();
  });
  Loader loader(data, {.batch = 1, .shuffle = false, .prefetch = 3});
  loader.start_epoch(0);
  for (uint64_t step = 0; step < 50; ++step) {
    loader.next();
    // The one in use and three more are read without being asked for.
    for (uint64_t count = reads; count < step + 4; count = reads) reads.wait(count);
    ASSERT_EQ(reads, step + 4);
  }
}

TEST(Loader, ReadsOnlyTheRowsThatAreNeeded) {
  std::vector<std::atomic<int>> reads(103);
  const Dataset data = numbered(103).map(
      [&](const Sample& sample) { ++reads[static_cast<size_t>(sample.label[0])]; });
  // Of three workers, each loads its third of every batch; of the last, with 3 rows, one each.
  for (uint64_t worker = 0; worker < 3; ++worker) {
    Loader loader(data, {.batch = 10, .needed = [&](uint64_t rows) {
                           return RowRange{worker * rows / 3, (worker + 1) * rows / 3};
                         }});
    loader.start_epoch(1);
    for (uint64_t step = 0; step < loader.steps_per_epoch(); ++step) {
      const Batch& batch = loader.next();
      ASSERT_EQ(batch.ids.size(), step == 10 ? 3u : 10u) << "but knows all of them";
      for (uint64_t row = worker * batch.ids.size() / 3; row < (worker + 1) * batch.ids.size() / 3;
           ++row) {
        EXPECT_EQ(batch.labels[row], static_cast<float>(batch.ids[row]));
        EXPECT_EQ(batch.features[row], static_cast<float>(10 * batch.ids[row]));
      }
    }
  }
  for (const std::atomic<int>& count : reads) EXPECT_EQ(count, 1);
}

TEST(Loader, EndsInTheMiddleOfARead) {
  for (int i = 0; i < 20; ++i) {
    std::atomic<bool> reading = false;
    const Dataset data = numbered(1000).map([&](const Sample&) {
      reading = true;
      reading.notify_all();
    });
    Loader loader(data, {.batch = 500});
    loader.start_epoch(0);
    reading.wait(false);
  }
}

}  // namespace
}  // namespace starling::data
