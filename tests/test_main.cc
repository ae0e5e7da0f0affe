// The main of every test program. STARLING_ISA=avx2 caps the instruction set, here and in the
// commands that tests start, so that the whole suite can be run as it would be on a lesser CPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/isa.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (const char* isa = std::getenv("STARLING_ISA")) starling::cap_isa(isa);
  return RUN_ALL_TESTS();
}
