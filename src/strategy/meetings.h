// Meetings: how workers that gossip average their weights in pairs while they train. A meeting is
// ordered; then each of the two
//
//   1. copies its weights, between two steps of its own, and goes on with the next step
//   2. sends the copy to the other, and gets that of the other: bytes of one set of weights each
//   way
//   3. between two later steps, goes half the way from its copy to the other: w += (theirs − own) /
//   2
//
// So what both learn meanwhile is kept, and nobody waits for anybody. For a worker that rests, the
// thread that has the fabric does 1 and 3. A worker is in one meeting at a time, each is between
// two, and nothing of it depends on another: so there is no circle to wait in.
//
// Two threads: that of the worker, and the one that has the fabric. Neither waits here but for a
// copy that the other makes. A partner that is lost is the failure of the meeting.
#pragma once

#include <mutex>
#include <optional>
#include <span>

#include "fabric/fabric.h"
#include "tensor/buffer.h"

namespace starling {

class Meetings {
 public:
  // `weights` are the worker's. Both outlive it.
  Meetings(Fabric& fabric, std::span<float> weights);
  ~Meetings() { cancel(); }
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;

  // For the thread with the fabric. With the worker of that rank; `number` is that of the meeting,
  // which no other has. The last one is over.
  void order(int rank, uint64_t number);
  // Whether something has changed.
  bool advance();
  bool is_over() const;
  const Status& status() const { return status_; }
  void cancel();

  // For the worker: between two steps.
  void look();
  // Its weights are left alone from now on, or not.
  void rest(bool rests);
  // How many are over.
  uint64_t count() const;
  // What they took of the worker's time, and what went on beside it.
  struct Seconds {
    double exposed = 0, hidden = 0;
  };
  Seconds seconds() const;

 private:
  enum class Step : uint8_t { kNone, kCalled, kCopied, kMoving, kCome };

  void look_locked();

  Fabric& fabric_;
  const std::span<float> weights_;
  Status status_;
  int rank_ = -1;
  uint64_t number_ = 0;
  Ticket sending_, receiving_;

  mutable std::mutex mutex_;  // guards what follows
  Step step_ = Step::kNone;
  Buffer<float> own_, theirs_;  // copies; none before the first meeting
  bool rests_ = false;
  uint64_t count_ = 0;
  Instant sent_at_{};
  Seconds seconds_;
};

}  // namespace starling
