#include "base/isa.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <oneapi/dnnl/dnnl_debug.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <dnnl.hpp>
#include <mutex>

#include "starling/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/isa.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace starling {
namespace HWY_NAMESPACE {
namespace {

int64_t own_target() { return HWY_TARGET; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace starling
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace starling {
HWY_EXPORT(own_target);
namespace {

constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

struct Cap {
  std::string_view name;
  int64_t removed;  // targets of Highway
  dnnl::cpu_isa onednn;
};
// From the least to the most.
constexpr Cap kCaps[] = {{"sse4", kAvx512 | HWY_AVX2, dnnl::cpu_isa::sse41},
                         {"avx2", kAvx512, dnnl::cpu_isa::avx2},
                         {"avx512", 0, dnnl::cpu_isa::all}};

// What our own kernels use. A function that is chosen as they are says it: Highway (1.0.3), when it
// is asked for the targets that are left, goes on with all that the processor has.
const Cap* in_use() {
  const int64_t target = HWY_DYNAMIC_DISPATCH(own_target)();
  return std::find_if(std::begin(kCaps), std::end(kCaps) - 1,
                      [&](const Cap& cap) { return (cap.removed & target) == 0; });
}

// The least cap that was asked for. oneDNN takes one, once, and before its first use: so it is told
// only then.
std::mutex mutex;
const Cap* least = std::end(kCaps) - 1;
bool settled = false;

// What the processor says of itself under `leaf`; zeros where it says nothing.
struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  Leaf(unsigned leaf, unsigned subleaf) {
    __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  }
};
constexpr unsigned kFeatures = 7;
constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // of edx under (kFeatures, 0)
constexpr unsigned kAvx512Bf16 = 1u << 5;                     // of eax under (kFeatures, 1)

// Whether the processor has matrix tiles (AMX) but does not say how large they are. Some
// hypervisors hide that leaf; oneDNN (2.6.3) then makes tiles of no rows and dies of an illegal
// instruction.
bool hides_tiles() {
  constexpr unsigned kTiles = 0x1d, kPalette = 1;
  return (Leaf(kFeatures, 0).edx & kAmxTile) != 0 && Leaf(kTiles, kPalette).ecx == 0;
}

// Linux gives tiles to a process that asks for them.
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

// What the processor and Linux offer.
Bf16Products offered_bf16_products() {
  constexpr unsigned kTiles = kAmxTile | kAmxBf16;
  if ((Leaf(kFeatures, 0).edx & kTiles) == kTiles && may_use_tiles()) return Bf16Products::kTiles;
  const bool pairs = (Leaf(kFeatures, 1).eax & kAvx512Bf16) != 0;
  return pairs ? Bf16Products::kPairs : Bf16Products::kRounded;
}

}  // namespace

void cap_isa(std::string_view name) {
  if (name == "native") return;
  const Cap* cap = std::find_if(std::begin(kCaps), std::end(kCaps),
                                [&](const Cap& known) { return known.name == name; });
  if (cap == std::end(kCaps)) {
    throw input_error(fmt::format("\"{}\" is not an instruction set", name),
                      "isa and STARLING_ISA take \"native\", \"avx512\", \"avx2\" or \"sse4\"");
  }
  if (in_use() <= cap) return;
  const std::lock_guard lock(mutex);
  if (settled) {
    throw input_error(fmt::format("the instruction set can't be capped at {}: {} is in use already",
                                  name, isa_name()),
                      "set isa before the first model is compiled in this process");
  }
  least = std::min(least, cap);
  hwy::DisableTargets(cap->removed);
}

void settle_isa() {
  const std::lock_guard lock(mutex);
  if (settled) return;
  settled = true;
  dnnl::cpu_isa most = least->onednn;
  if (most == dnnl::cpu_isa::all && hides_tiles()) most = dnnl::cpu_isa::avx512_core_bf16;
  // Without a cap of ours, oneDNN's own variables count. It refuses one only in a program that has
  // used it by itself before: then it is as that left it.
  if (most != dnnl::cpu_isa::all) dnnl::set_max_cpu_isa(most);
}

std::string isa_name() { return std::string(in_use()->name); }

Bf16Products bf16_products() {
  static const Bf16Products offered = offered_bf16_products();
  return isa_name() == "avx512" ? offered : Bf16Products::kRounded;
}

std::string_view bf16_products_name(Bf16Products products) {
  switch (products) {
    case Bf16Products::kTiles:
      return "tiles";
    case Bf16Products::kPairs:
      return "pairs";
    case Bf16Products::kRounded:
      break;
  }
  return "rounded";
}

std::string onednn_name() {
  settle_isa();
  const dnnl::version_t& version = *dnnl::version();
  std::string_view isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  if (constexpr std::string_view kPrefix = "cpu_isa_"; isa.starts_with(kPrefix))
    isa.remove_prefix(kPrefix.size());
  return fmt::format("{}.{}.{} {}", version.major, version.minor, version.patch, isa);
}

}  // namespace starling
#endif
