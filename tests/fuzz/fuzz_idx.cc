// Whatever the bytes, raw or gzipped: the parser refuses them with an Error, or gives an array all
// of whose samples can be read.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/idx.h"
#include "starling/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace starling;
  try {
    const data::Array array =
        data::parse_idx({"input", {reinterpret_cast<const std::byte*>(data), size}, nullptr});
    const data::Dataset dataset = data::join_idx(array, array, {});
    const size_t elements = static_cast<size_t>(dataset.feature_shape().elements());
    std::vector<float> features(elements), labels(elements);
    for (const uint64_t id : {uint64_t{0}, dataset.size() - 1}) {
      dataset.read({&id, 1}, features.data(), labels.data());
    }
  } catch (const Error&) {
  }
  return 0;
}
