// What ends the work of a worker, or interrupts it, for a reason that is not its own.
//
// LostWorker: the Error of a worker that can't go on because another was lost. What the other said
// is the cause; this is told where it said nothing.
#pragma once

#include <string>
#include <utility>

#include "starling/error.h"

namespace starling {

class LostWorker : public Error {
 public:
  LostWorker(const std::string& message, std::string hint)
      : Error(Cause::kRun, message, std::move(hint)) {}
};

// RetiredWorker: this worker was asked to leave, and the others go on without it. Not a failure:
// its process ends.
class RetiredWorker : public Error {
 public:
  RetiredWorker() : Error(Cause::kRun, "this worker has left the run", "") {}
};

}  // namespace starling
