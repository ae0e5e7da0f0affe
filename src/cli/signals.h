// Ctrl-C and SIGTERM. The first asks the run to stop: it saves and ends. The second ends the
// process at once, with exit code 128 + signal.
#pragma once

namespace starling {

void handle_stop_signals();

// True after the first signal. Cheap: asked after every step.
bool stop_requested();

}  // namespace starling
