// Whatever the bytes: the reader refuses them with an Error, or gives stretches that are written as
// what is read as the same. They are tried as a record, and as a stretch whose SHA-256 is right.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/sha256.h"
#include "param/record.h"
#include "starling/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace starling;
  const std::string input(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {input, record_header() + input + sha256_hex(input) + '\n'}) {
    try {
      RecordReader reader(text, "input");
      while (!reader.is_over()) {
        const std::string written = to_text(reader.next());
        const std::string again = record_header() + written;
        if (to_text(RecordReader(again, "again").next()) != written) std::abort();
      }
    } catch (const Error&) {
    }
  }
  return 0;
}
