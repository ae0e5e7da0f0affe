// WorkerOutput: what a worker writes, cut into lines for whoever launched it.
//
// A worker may write faster than its lines can be passed on, and need not end them. So a call takes
// what there is at that moment and leaves the rest to the next, and a line that is longer than
// kLineMax comes in pieces. Nothing here blocks. One thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "fabric/tcp/socket.h"

namespace starling {

class WorkerOutput {
 public:
  // Called with each line, without its end.
  using Print = FunctionRef<void(std::string_view line)>;
  static constexpr size_t kLineMax = size_t{64} << 10;  // of bytes; as many as a pipe holds

  WorkerOutput() = default;  // of one that writes elsewhere
  // The end of a pipe that does not block.
  explicit WorkerOutput(Socket pipe) : pipe_(std::move(pipe)) {}

  // To be polled for input, and then passed on. −1: there is no more.
  int fd() const { return pipe_.fd(); }
  // All lines that are there now.
  void pass_on(Print print);
  // Nothing more is waited for: likewise, and what is there of a line without an end.
  void finish(Print print);

 private:
  void add(std::string_view text, Print print);

  Socket pipe_;
  std::string line_;  // not yet ended
};

}  // namespace starling
