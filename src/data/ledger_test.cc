#include "data/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/random.h"
#include "data/process.h"
#include "data/test_files.h"

namespace starling::data {
namespace {

std::vector<uint64_t> all_ids(uint64_t size) {
  std::vector<uint64_t> ids(size);
  std::iota(ids.begin(), ids.end(), uint64_t{0});
  return ids;
}

LedgerEntry entry_of(const std::vector<uint64_t>& ids, uint64_t size, uint32_t epoch = 0) {
  Ledger ledger;
  ledger.begin(epoch, size);
  ledger.mark(ids);
  return ledger.finish();
}

TEST(Ledger, CountsEverySampleOnce) {
  for (const uint64_t size : {1u, 63u, 64u, 65u, 1000u}) {
    const LedgerEntry entry = entry_of(all_ids(size), size);
    EXPECT_EQ(entry.samples, size);
    EXPECT_EQ(entry.unique, size);
    EXPECT_EQ(entry.duplicated, 0u);
    EXPECT_EQ(entry.missing, 0u);
  }
}

TEST(Ledger, FindsMissingAndDuplicatedSamples) {
  const LedgerEntry entry = entry_of({0, 1, 1, 3, 1}, 5);
  EXPECT_EQ(entry.samples, 5u);
  EXPECT_EQ(entry.unique, 3u);
  EXPECT_EQ(entry.duplicated, 2u);
  EXPECT_EQ(entry.missing, 2u);
}

TEST(Ledger, HashesDoNotDependOnTheOrder) {
  std::vector<uint64_t> ids = all_ids(100);
  const LedgerEntry entry = entry_of(ids, 100);
  std::reverse(ids.begin(), ids.end());
  EXPECT_EQ(entry_of(ids, 100), entry);
  EXPECT_EQ(entry_of({0, 1}, 2).sum, mix64(0) + mix64(1));
  EXPECT_EQ(entry_of({0, 1}, 2).exclusive_or, mix64(0) ^ mix64(1));
}

TEST(Ledger, IsMarkedFromManyThreads) {
  const uint64_t size = 100000;
  Ledger ledger;
  ledger.begin(0, size);
  std::vector<std::thread> threads;
  for (uint64_t lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&ledger, lane] {
      const Permutation order(size, 1, 0);
      for (uint64_t i = lane; i < size; i += 4) {
        const uint64_t id = order(i);
        ledger.mark({&id, 1});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.finish(), entry_of(all_ids(size), size));
}

TEST(Ledger, RefusesSamplesBeyondTheDataSet) {
  Ledger ledger;
  ledger.begin(0, 64);
  EXPECT_THROW(ledger.mark(std::vector<uint64_t>{64}), Error);
}

TEST(Ledger, BeginForgetsTheEpochBefore) {
  Ledger ledger;
  ledger.begin(0, 200);
  ledger.mark(all_ids(200));
  ledger.begin(1, 100);
  ledger.mark(all_ids(100));
  EXPECT_EQ(ledger.finish(), entry_of(all_ids(100), 100, 1));
}

TEST(Ledger, AHalfDoneEpochGoesOnAfterRestore) {
  const std::vector<uint64_t> ids = all_ids(100);
  Ledger first, second;
  first.begin(3, 100);
  first.mark(std::span(ids).first(37));
  second.restore(first.save());
  second.mark(std::span(ids).subspan(37));
  EXPECT_EQ(second.finish(), entry_of(ids, 100, 3));
}

TEST(Ledger, RestoreRefusesDamagedBytesAndKeepsWhatItHad) {
  Ledger ledger;
  ledger.begin(1, 70);
  ledger.mark(all_ids(10));
  const LedgerEntry before = ledger.finish();
  const std::vector<std::byte> good = ledger.save();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(ledger.restore(std::span(good).first(length)), Error) << length;
  }
  // Each of these bytes belongs to a value that is checked against the others.
  for (const size_t at : {0, 12, 16, 23, 24, 32, 56, 71}) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{0x80};
    EXPECT_THROW(ledger.restore(bad), Error) << at;
  }
  EXPECT_EQ(ledger.finish(), before);
}

TEST(Ledger, IsWrittenAsALineOfJson) {
  const LedgerEntry entry{3, 5, 3, 2, 1, 0xABC, uint64_t{1} << 63};
  EXPECT_EQ(entry.to_json(),
            "{\"epoch\": 3, \"samples\": 5, \"unique\": 3, \"duplicated\": 2, \"missing\": 1, "
            "\"sum\": \"0000000000000abc\", \"xor\": \"8000000000000000\"}");
}

class CheckLedger : public FolderTest {
 protected:
  ProcessResult check(const std::vector<LedgerEntry>& entries,
                      const std::vector<std::string>& options = {}) {
    std::string text;
    for (const LedgerEntry& entry : entries) text += entry.to_json() + "\n";
    std::vector<std::string> arguments = {
        "python3", std::string(STARLING_SOURCE_DIR) + "/tools/check_ledger.py",
        write("ledger.jsonl", text).string()};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_process(arguments, folder_, std::chrono::seconds(60));
  }
};

TEST_F(CheckLedger, AgreesWithARightLedger) {
  const ProcessResult result =
      check({entry_of(all_ids(1000), 1000, 0), entry_of(all_ids(1000), 1000, 1)},
            {"--samples", "1000", "--epochs", "2"});
  EXPECT_TRUE(result.ok()) << result.output;
  EXPECT_NE(result.output.find("OK: 2 epochs"), std::string::npos) << result.output;
}

TEST_F(CheckLedger, FindsEveryFault) {
  const LedgerEntry right = entry_of(all_ids(100), 100);
  LedgerEntry wrong_sum = right, wrong_xor = right;
  ++wrong_sum.sum;
  wrong_xor.exclusive_or ^= 1;
  // Counts that look right, but another sample was used in the place of one.
  LedgerEntry swapped = entry_of({0, 1, 1}, 3);
  swapped.unique = 3;
  swapped.duplicated = swapped.missing = 0;
  for (const auto& entries :
       std::vector<std::vector<LedgerEntry>>{{},
                                             {wrong_sum},
                                             {wrong_xor},
                                             {swapped},
                                             {entry_of({0, 1}, 3)},
                                             {entry_of({0, 1, 2, 2}, 3)},
                                             {right, right},
                                             {entry_of(all_ids(100), 100, 1)}}) {
    const ProcessResult result = check(entries);
    EXPECT_EQ(result.exit_code, 1) << result.output;
    EXPECT_EQ(result.output.find("OK"), std::string::npos) << result.output;
  }
  EXPECT_EQ(check({right}, {"--samples", "99"}).exit_code, 1);
  EXPECT_EQ(check({right}, {"--epochs", "2"}).exit_code, 1);
}

}  // namespace
}  // namespace starling::data
