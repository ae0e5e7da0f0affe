// Whatever the bytes: the parser refuses them with an Error, or gives an array all of whose samples
// can be read.
#include <cstddef>
#include <cstdint>

#include "data/npy.h"
#include "read_ends.h"
#include "starling/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace starling;
  try {
    const data::Array array =
        data::parse_npy({"input", {reinterpret_cast<const std::byte*>(data), size}, nullptr});
    read_ends(data::join(array, array, 1));
  } catch (const Error&) {
  }
  return 0;
}
