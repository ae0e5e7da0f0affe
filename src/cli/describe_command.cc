#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/commands.h"
#include "job/describe.h"

namespace starling {

int describe_command(const Arguments& arguments) {
  const Job job = load_job(arguments.target, arguments.settings);
  fmt::print("{}", describe_job(job, {.kernels = arguments.kernels}));
  return kExitDone;
}

}  // namespace starling
