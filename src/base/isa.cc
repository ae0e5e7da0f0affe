#include "base/isa.h"

#include <fmt/format.h>
#include <hwy/targets.h>
#include <oneapi/dnnl/dnnl_debug.h>

#include <algorithm>
#include <dnnl.hpp>

#include "starling/error.h"

namespace starling {
namespace {

constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

struct Cap {
  std::string_view name;
  int64_t removed;  // targets of Highway
  dnnl::cpu_isa onednn;
};
constexpr Cap kCaps[] = {{"avx512", 0, dnnl::cpu_isa::all},
                         {"avx2", kAvx512, dnnl::cpu_isa::avx2},
                         {"sse4", kAvx512 | HWY_AVX2, dnnl::cpu_isa::sse41}};

}  // namespace

void cap_isa(std::string_view name) {
  if (name == "native") return;
  const auto cap = std::find_if(std::begin(kCaps), std::end(kCaps),
                                [&](const Cap& known) { return known.name == name; });
  if (cap == std::end(kCaps)) {
    throw input_error(fmt::format("\"{}\" is not an instruction set", name),
                      "isa and STARLING_ISA take \"native\", \"avx512\", \"avx2\" or \"sse4\"");
  }
  if ((hwy::SupportedTargets() & cap->removed) == 0) return;
  if (dnnl::set_max_cpu_isa(cap->onednn) != dnnl::status::success) {
    throw input_error(fmt::format("the instruction set can't be capped at {}: {} is in use already",
                                  name, isa_name()),
                      "set isa before the first model is compiled in this process");
  }
  hwy::DisableTargets(cap->removed);
}

std::string isa_name() {
  const int64_t targets = hwy::SupportedTargets();
  if (targets & kAvx512) return "avx512";
  if (targets & HWY_AVX2) return "avx2";
  return "sse4";
}

std::string onednn_name() {
  const dnnl::version_t& version = *dnnl::version();
  std::string_view isa = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  if (constexpr std::string_view kPrefix = "cpu_isa_"; isa.starts_with(kPrefix))
    isa.remove_prefix(kPrefix.size());
  return fmt::format("{}.{}.{} {}", version.major, version.minor, version.patch, isa);
}

}  // namespace starling
