// The instruction set that kernels may use. Bits differ between instruction sets, so a job can
// cap it (`isa = "avx2"`) to have one set of bits on unlike CPUs.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// Caps oneDNN and our own kernels at "sse4", "avx2" or "avx512"; "native" leaves all there is. Of
// several caps the least counts. Throws Error for another name, or when settle_isa has been called
// and the cap would change it.
void cap_isa(std::string_view name);

// Tells oneDNN the cap: before its first use, after which there can be no other.
void settle_isa();

// What kernels use on this machine now: "sse4", "avx2" or "avx512".
std::string isa_name();

// How bf16 is multiplied on this machine now, from the slowest to the fastest; who has one has
// those before it. Each has bits of its own.
enum class Bf16Products {
  kRounded,  // as f32, of operands that are rounded
  kPairs,    // by dot products of pairs (AVX512_BF16)
  kTiles,    // by matrix tiles (AMX)
};
Bf16Products bf16_products();

// "rounded", "pairs" or "tiles".
std::string_view bf16_products_name(Bf16Products products);

// oneDNN's version, and the instruction set that it uses on this machine now, which it names more
// finely: "2.6.3 avx512_core_amx". From then on cap_isa throws.
std::string onednn_name();

}  // namespace starling
