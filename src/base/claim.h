// Claims on lines of memory that cores write in turn.
//
// Who writes a line takes it from whoever has it. On AMD's processors that takes long if another
// core has only read the line, and short if it has written it (two threads, a line: on Zen 4 7
// against 1 ns within a group of cores, 28 against 3 between groups; on Zen 5 1.5 against 0.6
// within one). So who reads memory that another core writes next claims its lines, by storing what
// is there. Other processors were not measured: there nobody claims anything.
#pragma once

#include <optional>

namespace starling {

// Whether claims pay on this processor.
bool claims_pay();
// Whether it pays, too, to copy what all read and one writes, for each to read its own
// (strategy/weight_copies.h): not on Zen 5, where the copies cost more than they save within a
// group of cores, and save little more than claims between groups.
bool copies_pay();
// For tests: as if both did, or did not; nullopt: as it is. Not while workers run.
void force_claims(std::optional<bool> pay);

// Claims the line of `at`. Nobody else reads or writes what is there meanwhile.
inline void claim(const float* at) {
  volatile float& there = *const_cast<float*>(at);
  there = there;
}

}  // namespace starling
