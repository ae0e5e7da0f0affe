#include "cli/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <new>
#include <system_error>

#include "cli/environment.h"
#include "cli/predictions.h"
#include "data/npy.h"
#include "starling/error.h"

namespace starling {
namespace {

template <typename Exception>
ErrorText text_of(const Exception& exception) {
  return error_text(std::make_exception_ptr(exception));
}

TEST(ErrorText, ExitCodeSaysWhoHasToAct) {
  EXPECT_EQ(text_of(input_error("a", "b")).exit_code, 2);
  EXPECT_EQ(text_of(run_error("a", "b")).exit_code, 1);
  EXPECT_EQ(text_of(run_error("a", "b")).message, "a");
  EXPECT_EQ(text_of(run_error("a", "b")).hint, "b");
}

TEST(ErrorText, WhatIsNoErrorOfOursHasAHintToo) {
  const ErrorText memory = text_of(std::bad_alloc());
  EXPECT_EQ(memory.exit_code, 1);
  EXPECT_EQ(memory.message, "there is not enough memory");
  const ErrorText threads =
      text_of(std::system_error(EAGAIN, std::generic_category(), "no thread"));
  EXPECT_EQ(threads.message, "the system gives no more threads");
  EXPECT_THAT(threads.hint, testing::HasSubstr("ulimit -u"));
  EXPECT_THAT(text_of(std::system_error(EIO, std::generic_category())).message,
              testing::StartsWith("internal: "));
  const ErrorText internal = text_of(std::logic_error("x"));
  EXPECT_EQ(internal.exit_code, 1);
  EXPECT_EQ(internal.message, "internal: x");
  EXPECT_FALSE(internal.hint.empty());
  EXPECT_EQ(text_of(42).exit_code, 1);
}

Environment environment_of(const std::map<std::string, std::string>& variables) {
  return read_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Environment, CacheFolderIsOursBeforeTheUsers) {
  EXPECT_EQ(environment_of({}).cache, "");
  EXPECT_EQ(environment_of({{"XDG_CACHE_HOME", "/c"}}).cache, "/c/starling");
  EXPECT_EQ(environment_of({{"XDG_CACHE_HOME", "/c"}, {"STARLING_CACHE", "/s"}}).cache, "/s");
  EXPECT_EQ(environment_of({{"STARLING_CACHE", ""}}).cache, "");
  EXPECT_EQ(environment_of({{"HOME", "/h"}}).cache, "/h/.cache/starling");
  EXPECT_EQ(environment_of({{"HOME", "/h"}, {"XDG_CACHE_HOME", "/c"}}).cache, "/c/starling");
}

TEST(Environment, CapsTheInstructionSet) {
  EXPECT_EQ(environment_of({}).isa, "native");
  EXPECT_EQ(environment_of({{"STARLING_ISA", ""}}).isa, "native");
  EXPECT_EQ(environment_of({{"STARLING_ISA", "avx2"}}).isa, "avx2");
}

TEST(Environment, TerminalFollowsLocaleAndNoColor) {
  EXPECT_FALSE(environment_of({}).unicode);
  EXPECT_TRUE(environment_of({{"LANG", "en_GB.UTF-8"}}).unicode);
  EXPECT_TRUE(environment_of({{"LANG", "C.utf8"}}).unicode);
  EXPECT_FALSE(environment_of({{"LANG", "en_GB.UTF-8"}, {"LC_ALL", "C"}}).unicode);
  EXPECT_TRUE(environment_of({}).color);
  EXPECT_FALSE(environment_of({{"NO_COLOR", "1"}}).color);
  EXPECT_FALSE(environment_of({{"TERM", "dumb"}}).color);
}

TEST(Predictions, SoftmaxIsSafeForLargeValues) {
  Predictions predictions{.values = {1000, 1000, 0, std::log(3.0f)}, .shape = {2}};
  softmax_rows(predictions);
  EXPECT_FLOAT_EQ(predictions.values[0], 0.5f);
  EXPECT_FLOAT_EQ(predictions.values[2], 0.25f);
  EXPECT_FLOAT_EQ(predictions.values[3], 0.75f);
}

TEST(Predictions, SigmoidOfEachValue) {
  Predictions predictions{.values = {0, 1000, -1000}, .shape = {1}};
  sigmoid_values(predictions);
  EXPECT_EQ(predictions.values, (std::vector<float>{0.5f, 1, 0}));
}

TEST(Predictions, LargestFirstAndLowerIndexOfEquals) {
  const Predictions predictions{.values = {1, 3, 3, 2}, .shape = {4}};
  const auto top = largest(predictions, 0, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].first, 1u);
  EXPECT_EQ(top[1].first, 2u);
  EXPECT_EQ(top[2].first, 3u);
  EXPECT_EQ(largest(predictions, 0, 99).size(), 4u);
}

TEST(Predictions, TextAndCsvNumberSamplesAsTheDataSet) {
  const Predictions predictions{.values = {0.25f, 0.75f}, .shape = {2}, .first_sample = 7};
  EXPECT_EQ(predictions_text(predictions, true, 1), "sample 7: class 1 75.00%\n");
  EXPECT_EQ(predictions_text(predictions, false, 1), "sample 7: 0.25, 0.75\n");
  EXPECT_EQ(predictions_csv(predictions), "sample,0,1\n7,0.25,0.75\n");
}

TEST(Predictions, NpyIsReadBack) {
  const Predictions predictions{.values = {1, 2, 3, 4, 5, 6}, .shape = {3}};
  const std::string file = predictions_npy(predictions);
  data::FileBytes bytes{"file.npy", std::as_bytes(std::span(file)), nullptr};
  const data::Array array = data::parse_npy(std::move(bytes));
  EXPECT_EQ(array.layout.samples, 2u);
  EXPECT_EQ(array.layout.sample, (Shape{3}));
  EXPECT_EQ(array.layout.offset % 64, 0u);
  EXPECT_EQ(std::memcmp(array.sample(0), predictions.values.data(), 24), 0);
}

TEST(Predictions, UnknownEndingIsRefused) {
  EXPECT_THROW(write_predictions({.values = {1}, .shape = {1}}, "x.txt"), Error);
}

}  // namespace
}  // namespace starling
