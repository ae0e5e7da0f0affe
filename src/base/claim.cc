#include "base/claim.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace starling {
namespace {

// The family of a processor of AMD's; 0: another's.
unsigned amd_family() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__builtin_cpu_is("amd") == 0 || __get_cpuid(1, &a, &b, &c, &d) == 0) return 0;
  return (a >> 8 & 0xF) + (a >> 20 & 0xFF);
#else
  return 0;
#endif
}

constexpr unsigned kZen5 = 0x1A;
std::optional<bool> forced;

}  // namespace

bool claims_pay() {
  static const bool amd = amd_family() != 0;
  return forced.value_or(amd);
}

bool copies_pay() {
  static const unsigned family = amd_family();
  return forced.value_or(family != 0 && family < kZen5);
}

void force_claims(std::optional<bool> pay) { forced = pay; }

}  // namespace starling
