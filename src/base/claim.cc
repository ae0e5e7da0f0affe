#include "base/claim.h"

namespace starling {
namespace {

bool is_amd() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

std::optional<bool> forced;

}  // namespace

bool claims_pay() {
  static const bool amd = is_amd();
  return forced.value_or(amd);
}

void force_claims(std::optional<bool> pay) { forced = pay; }

}  // namespace starling
