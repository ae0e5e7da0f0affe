// libFuzzer target of job files: any text, and a --set after its first zero byte, gives an Error or
// a job that can be written and read back to the same job.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "job/job.h"
#include "starling/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace starling;
  const std::string input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  std::string written;
  try {
    std::vector<Setting> settings;
    if (end != std::string::npos) settings.push_back(parse_setting(input.substr(end + 1)));
    written = job_to_toml(parse_job(input.substr(0, end), "fuzz", {}, settings));
  } catch (const Error&) {
    return 0;
  }
  // An Error here is not caught: what we write, we can read.
  if (job_to_toml(parse_job(written, "copy")) != written) std::abort();
  return 0;
}
