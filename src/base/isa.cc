#include "base/isa.h"

#include <fmt/format.h>
#include <hwy/targets.h>

#include <dnnl.hpp>

#include "starling/error.h"

namespace starling {
namespace {

constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

}  // namespace

void cap_isa(std::string_view name) {
  int64_t removed = 0;
  dnnl::cpu_isa cap = dnnl::cpu_isa::all;
  if (name == "native") {
    return;
  } else if (name == "avx512") {
    cap = dnnl::cpu_isa::all;
  } else if (name == "avx2") {
    removed = kAvx512;
    cap = dnnl::cpu_isa::avx2;
  } else if (name == "sse4") {
    removed = kAvx512 | HWY_AVX2;
    cap = dnnl::cpu_isa::sse41;
  } else {
    throw input_error(fmt::format("isa = \"{}\" is not an instruction set", name),
                      "use \"native\", \"avx512\", \"avx2\" or \"sse4\"");
  }
  const std::string before = isa_name();
  if (before == name) return;
  if (dnnl::set_max_cpu_isa(cap) != dnnl::status::success) {
    throw input_error(fmt::format("the instruction set can't be capped at {}: {} is in use already",
                                  name, before),
                      "set isa before the first model is compiled in this process");
  }
  if (removed != 0) hwy::DisableTargets(removed);
}

std::string isa_name() {
  const int64_t targets = hwy::SupportedTargets();
  if (targets & kAvx512) return "avx512";
  if (targets & HWY_AVX2) return "avx2";
  return "sse4";
}

}  // namespace starling
