// Ctrl-C, SIGTERM and SIGHUP. The first asks the run to stop: it saves and ends. A second Ctrl-C or
// SIGTERM ends the process at once, with exit code 128 + signal. What comes before they are handled
// waits, so that a run which has just begun stops like any other.
#pragma once

#include <signal.h>

namespace starling {

// Keeps them waiting while it lives, unless they are handled before its end.
class StopSignalsWait {
 public:
  StopSignalsWait();
  ~StopSignalsWait();
  StopSignalsWait(const StopSignalsWait&) = delete;
  StopSignalsWait& operator=(const StopSignalsWait&) = delete;

 private:
  sigset_t before_;
};

// From here on they are handled, those that have waited first. `tell`: the first is answered on
// standard error.
void handle_stop_signals(bool tell);

// From here on the run goes on unheard when nobody reads what it says any more: Ctrl-C ends the
// `tee` behind it too.
void outlive_listeners();

// True after the first signal. Cheap: asked after every step.
bool stop_requested();

}  // namespace starling
