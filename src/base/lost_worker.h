// LostWorker: the Error of a worker that can't go on because another was lost. What the other said
// is the cause; this is told where it said nothing.
#pragma once

#include <string>
#include <utility>

#include "starling/error.h"

namespace starling {

class LostWorker : public Error {
 public:
  LostWorker(const std::string& message, std::string hint, int peer = -1)
      : Error(Cause::kRun, message, std::move(hint)), peer_(peer) {}

  // The rank that seems to be lost; −1: nobody knows.
  int peer() const { return peer_; }

 private:
  int peer_;
};

}  // namespace starling
