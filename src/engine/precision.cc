#include "starling/precision.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {

Precision precision_from_name(std::string_view name) {
  if (name == "f32") return Precision::kF32;
  if (name == "bf16") return Precision::kBf16;
  throw input_error(fmt::format("precision = \"{}\" is not known", name),
                    "use \"f32\" or \"bf16\"");
}

const char* precision_name(Precision precision) {
  return precision == Precision::kF32 ? "f32" : "bf16";
}

}  // namespace starling
