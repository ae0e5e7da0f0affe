#include "cli/commands.h"
#include "cluster/launcher.h"

namespace starling {

int launch_command(const Arguments& arguments) {
  return launch({.command = arguments.program,
                 .workers = arguments.workers,
                 .lanes = arguments.lanes,
                 .fabric = arguments.fabric == "tcp" ? FabricKind::kTcp : FabricKind::kShm});
}

}  // namespace starling
