#include "base/isa.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/isa_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

// A kernel that says which one it is.
const char* kernel() {
#if HWY_TARGET == HWY_AVX3
  return "avx512";
#elif HWY_TARGET == HWY_AVX2
  return "avx2";
#else
  return "sse4";
#endif
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
HWY_EXPORT(kernel);
namespace {

// Ends this process, with 0 if kernels and isa_name() agree on what is left.
[[noreturn]] void use_capped(std::string_view cap) {
  const bool is_less = isa_name() == "sse4" || (isa_name() == "avx2" && cap == "avx512");
  const std::string expected = is_less ? isa_name() : std::string(cap);
  cap_isa(cap);
  cap_isa("avx512");  // changes nothing any more
  const bool is_named = isa_name() == expected;
  settle_isa();
  std::exit(is_named && HWY_DYNAMIC_DISPATCH(kernel)() == expected ? 0 : 1);
}

TEST(Isa, ACapHoldsForKernelsTooAndHoweverOftenItIsAskedFor) {
  for (const char* cap : {"sse4", "avx2", "avx512"})
    EXPECT_EXIT(use_capped(cap), testing::ExitedWithCode(0), "") << cap;
}

}  // namespace
}  // namespace starling
#endif
