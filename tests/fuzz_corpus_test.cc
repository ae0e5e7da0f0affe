// Every fuzz target takes every seed kept for it without a crash: good files, hostile ones, and
// what fuzzing has found. Needs no clang; tools/test_long does the fuzzing itself.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#define FUZZ_TARGET(name) extern "C" int name(const uint8_t* data, size_t size);
#include "fuzz_targets.inc"
#undef FUZZ_TARGET

namespace {

struct Target {
  std::string name;
  int (*run)(const uint8_t* data, size_t size);
};
const std::vector<Target> kTargets = {
#define FUZZ_TARGET(name) {#name, name},
#include "fuzz_targets.inc"
#undef FUZZ_TARGET
};

struct Seed {
  Target target;
  std::filesystem::path path;

  friend std::ostream& operator<<(std::ostream& out, const Seed& seed) {
    return out << seed.path.filename().string();
  }
};

std::filesystem::path corpus() {
  return std::filesystem::path(STARLING_SOURCE_DIR) / "tests/fuzz/corpus";
}

std::vector<std::filesystem::path> seeds_of(const std::string& target) {
  std::vector<std::filesystem::path> paths;
  if (!std::filesystem::exists(corpus() / target)) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(corpus() / target)) {
    paths.push_back(entry.path());
  }
  return paths;
}

std::vector<Seed> seeds() {
  std::vector<Seed> all;
  for (const Target& target : kTargets) {
    for (const auto& path : seeds_of(target.name)) all.push_back({target, path});
  }
  return all;
}

class FuzzCorpus : public testing::TestWithParam<Seed> {};

TEST_P(FuzzCorpus, IsTakenOrRefused) {
  std::ifstream stream(GetParam().path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), {}};
  // A block of exactly that size, so that a sanitizer sees a read past its end.
  const auto exact = std::make_unique<uint8_t[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), exact.get());
  EXPECT_EQ(GetParam().target.run(exact.get(), bytes.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FuzzCorpus, testing::ValuesIn(seeds()), [](const auto& test) {
  std::string name = test.param.target.name + "_" + test.param.path.filename().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
});

TEST(FuzzTargets, EachHasSeeds) {
  EXPECT_FALSE(kTargets.empty());
  for (const Target& target : kTargets) {
    EXPECT_GE(seeds_of(target.name).size(), 5u) << target.name;
  }
}

}  // namespace
