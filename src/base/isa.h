// The instruction set that kernels may use. Bits differ between instruction sets, so a job can
// cap it (`isa = "avx2"`) to have one set of bits on unlike CPUs.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// Caps oneDNN and our own kernels at "sse4", "avx2" or "avx512"; "native" leaves all there is.
// Must be called before the first kernel runs; throws Error for another name, or when a kernel
// has run already and the cap would change it.
void cap_isa(std::string_view name);

// What kernels use on this machine now: "sse4", "avx2" or "avx512".
std::string isa_name();

}  // namespace starling
