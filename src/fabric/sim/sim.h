// Sim: a world of ranks in one process, in virtual time, out of a seed. Links delay, lose, double
// and reorder messages; parts of the world are cut off from each other; ranks die or freeze at a
// time or at an operation. The same seed and options give the same run, event by event:
// trace_hash() proves it, and a failing seed replays.
//
// Ranks run as machines (run: one thread, for tests by the ten thousand) or as blocking code
// (run_blocking: a thread per rank, of which exactly one runs at a time, in an order that the seed
// gives). A message's send is done at once up to `eager_bytes`; a larger one waits for its
// receiver, which finds programs that rely on buffers. Memory that changes before its send is done
// is found and thrown as std::logic_error.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/function_ref.h"
#include "fabric/fabric.h"

namespace starling {

class SimCore;

// Probabilities are per message. Delays are uniform between least and most.
struct SimLink {
  std::chrono::nanoseconds delay_least = std::chrono::microseconds(5);
  std::chrono::nanoseconds delay_most = std::chrono::microseconds(50);
  double bytes_per_second = 0;  // adds length / this to the delay; 0: none
  double drop = 0;              // lost without a trace: the send is done
  double duplicate = 0;         // comes twice
  bool reorder = false;         // also within a tag, which real fabrics never do
};

// Between the two times, ranks whose bit is set in `group` and the others don't hear each other.
struct SimPartition {
  Instant from, until;
  uint64_t group = 0;
  bool lose = false;  // messages are lost; otherwise they come after the end
};

// What happens to a rank: at a time, or at its k-th started transfer (from 1), whichever
// is given. A frozen rank goes on after `lasts`; a dead one never does.
struct SimFault {
  int rank = 0;
  Instant at = Instant::max();
  uint64_t operation = 0;
  bool freeze = false;
  std::chrono::nanoseconds lasts{0};
};

struct SimOptions {
  int world = 2;
  uint64_t seed = 0;
  SimLink link;                                           // all links …
  std::function<SimLink(int from, int to)> link_between;  // … unless this is set
  size_t eager_bytes = 64 << 10;
  std::chrono::nanoseconds notice_least = std::chrono::microseconds(100);  // of a death, by a peer
  std::chrono::nanoseconds notice_most = std::chrono::milliseconds(2);
  std::vector<SimPartition> partitions;
  std::vector<SimFault> faults;
  Instant end = Instant(std::chrono::seconds(60));  // of virtual time, which begins at Instant{}
};

class SimWorld {
 public:
  explicit SimWorld(SimOptions options);
  ~SimWorld();

  Fabric& fabric(int rank);
  Instant now() const;

  struct Outcome {
    enum class End { kAllDone, kStalled, kOutOfTime };
    End end = End::kAllDone;  // stalled: nothing is under way, yet not all are done
    std::vector<bool> done;   // by rank
    std::vector<bool> dead;
    uint64_t operations = 0;                                // of all ranks
    bool all_done() const { return end == End::kAllDone; }  // of those who live
  };

  // Runs machines: advance(rank) is called first at time 0, and again whenever something changed
  // for the rank or the deadline of its last progress() has come; true when it is done. What it
  // throws is thrown here.
  Outcome run(FunctionRef<bool(int rank)> advance);
  // Runs blocking code: body(rank, fabric) returns when it is done, which closes it. In a rank that
  // dies the next call of the fabric throws SimDeath, which the body must let through. What another
  // throws is thrown here, when all have ended.
  Outcome run_blocking(FunctionRef<void(int rank, Fabric& fabric)> body);

  // Kills or freezes now, from a machine or between runs.
  void kill(int rank);
  void freeze(int rank, std::chrono::nanoseconds lasts);

  // Transfers that the rank has started so far: what SimFault::operation counts.
  uint64_t operations(int rank) const;
  // Of all events so far.
  uint64_t trace_hash() const;

 private:
  void drive(FunctionRef<void(int rank)> resume);
  Outcome outcome() const;

  std::unique_ptr<SimCore> core_;
};

// Thrown through the code of a rank at its death.
struct SimDeath {};

}  // namespace starling
