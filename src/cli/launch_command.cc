#include "cli/commands.h"
#include "cluster/launcher.h"
#include "fabric/paced/link_options.h"

namespace starling {

int launch_command(const Arguments& arguments) {
  return launch({.command = arguments.program,
                 .workers = arguments.workers,
                 .lanes = arguments.lanes,
                 .fabric = arguments.fabric == "tcp" ? FabricKind::kTcp : FabricKind::kShm,
                 .link = parse_link(arguments.link_rate, arguments.link_delay)});
}

}  // namespace starling
