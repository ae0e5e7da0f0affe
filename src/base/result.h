// Result<T>: a value, or the Failure that stood in its way. It is returned for what a run survives
// (a lost peer, a deadline, a stale view); what ends a run is thrown as Error. A Result has to be
// looked at: the compiler warns of one that is dropped. Plain values, no threads.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace starling {

// Named by what the caller should do about it.
enum class FailureKind : uint8_t {
  kPeerGone,   // go on without the peer: it is dead or unreachable, and stays so
  kDeadline,   // not done in time: the peer may be slow, frozen or cut off; ask who is alive
  kStaleView,  // the transfer belongs to a view that is over: start it again in the new one
  kLength,     // the message is not as long as was agreed: the two sides disagree, do not go on
  kClosed,     // this side was closed
};

// "peer gone", "deadline", ….
inline const char* name_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kPeerGone:
      return "peer gone";
    case FailureKind::kDeadline:
      return "deadline";
    case FailureKind::kStaleView:
      return "stale view";
    case FailureKind::kLength:
      return "length";
    case FailureKind::kClosed:
      return "closed";
  }
  return "unknown";
}

struct Failure {
  FailureKind kind = FailureKind::kClosed;
  int peer = -1;        // the rank that it is about, or −1
  std::string message;  // operation, rank, peer, bytes, elapsed: for a person
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}            // NOLINT
  Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Requires ok(); throws std::logic_error otherwise, with the failure's message.
  const T& value() const& {
    if (!ok()) throw std::logic_error("Result has no value: " + failure().message);
    return std::get<0>(state_);
  }
  T value() && {
    if (!ok()) throw std::logic_error("Result has no value: " + failure().message);
    return std::get<0>(std::move(state_));
  }
  // Requires !ok().
  const Failure& failure() const { return std::get<1>(state_); }

 private:
  std::variant<T, Failure> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Failure failure) : failed_(true), failure_(std::move(failure)) {}  // NOLINT

  bool ok() const { return !failed_; }
  explicit operator bool() const { return ok(); }
  // Requires !ok().
  const Failure& failure() const { return failure_; }

 private:
  bool failed_ = false;
  Failure failure_;
};

// Done, or why not.
using Status = Result<void>;

}  // namespace starling
