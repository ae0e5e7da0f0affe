// libFuzzer target of the safetensors parser: any bytes give tensors inside the input, or Error.
#include <cstdlib>
#include <span>

#include "starling/error.h"
#include "train/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const starling::SafetensorsView view = starling::parse_safetensors(file, "fuzz");
    size_t covered = 0;
    for (const auto& tensor : view.tensors) {
      const bool inside = tensor.data.empty() ||
                          (tensor.data.data() >= file.data() &&
                           tensor.data.data() + tensor.data.size() <= file.data() + file.size());
      if (!inside) std::abort();
      covered += tensor.data.size();
    }
    if (covered > size) std::abort();
    const auto tensors = starling::to_named_tensors(view, "fuzz");
    for (const auto& tensor : tensors) {
      if (tensor.values.size() != static_cast<size_t>(tensor.shape.elements())) std::abort();
    }
    // What was read can be written and read again.
    std::vector<std::byte> copy;
    starling::write_safetensors(tensors, view.metadata, [&](std::span<const std::byte> bytes) {
      copy.insert(copy.end(), bytes.begin(), bytes.end());
    });
    if (starling::parse_safetensors(copy, "copy").tensors.size() != tensors.size()) std::abort();
  } catch (const starling::Error&) {
  }
  return 0;
}
