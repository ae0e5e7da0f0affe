#include "base/float_flags.h"

#include <immintrin.h>

namespace starling {
namespace {

constexpr unsigned kFlags = 0x003F, kInvalid = 0x0001, kDividedByZero = 0x0004, kOverflow = 0x0008;

}  // namespace

bool arithmetic_raised() { return _mm_getcsr() & (kInvalid | kDividedByZero | kOverflow); }

void clear_arithmetic_flags() {
  const unsigned now = _mm_getcsr();
  if (now & kFlags) _mm_setcsr(now & ~kFlags);
}

void raise_overflow() { _mm_setcsr(_mm_getcsr() | kOverflow); }

}  // namespace starling
