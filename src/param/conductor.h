// Conductor: who of the parameter service does what next. While workers train apart, it hands out
// samples, hears of gradients that are on all servers, and decides what becomes of them, by a
// Consistency. What it says is a log of orders that every member obeys in its order, so all servers
// make the same updates one after another, and a worker that is lent samples gets the weights of
// one version, from all servers.
//
// It is there for one *stretch*: from a moment when all members have the same state to the next.
// A stretch ends when all samples are used, or it is asked to drain(), and all gradients under way
// have come. When a member is lost it is cut off: orders that were given count, and samples without
// one are free again.
//
// Pure: no I/O, no clock. One thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "param/consistency.h"
#include "param/partition.h"
#include "param/sample_ranges.h"

namespace starling {

// A gradient that is on all servers.
struct Push {
  int worker = 0;  // by name
  SampleRange samples;
  uint64_t version = 0;      // of the weights: how many updates they had seen
  bool finite = true;        // false: it counts as used, but changes nothing
  double seconds = 0;        // for which the worker computed it
  std::vector<double> sums;  // of loss and metrics over the samples
  uint64_t met = 0;          // meetings of the worker in this stretch that are over
  uint64_t computed = 0;     // a hash of the samples that the worker has computed it from
  bool operator==(const Push&) const = default;
};

struct Order {
  enum class Kind : uint8_t {
    kLend,   // to `worker`, the samples; servers send it the weights as they are now
    kApply,  // servers make one update of the pushes, or of all that were added
    kAdd,    // servers add the pushes to what will be an update
    kDrop,   // servers forget the push of `worker`
    kMeet,   // `worker` and `partner` average their weights
    kOver,   // the stretch is over
  };
  Kind kind = Kind::kOver;
  int worker = -1, partner = -1;
  SampleRange samples;  // of kLend
  // Of kApply and kAdd, in the order in which they are added; what kDrop is about.
  std::vector<Push> pushes;
  bool operator==(const Order&) const = default;
};

// Leases that a worker may have beside the one it computes, at most.
constexpr uint32_t kAheadMost = 7;

struct Stretch {
  std::vector<int> workers;  // those that compute, by name
  SampleRanges free;         // samples of the epoch to be trained on
  uint64_t batch = 1;        // samples of a round of all gradients that are waited for
  uint64_t version = 0;      // updates before this stretch
  ConsistencyOptions consistency;
  PartitionKind partition = PartitionKind::kDynamic;
  uint32_t ahead = 0;          // how many leases a worker may have beside the one it computes
  std::vector<double> speeds;  // of the workers, in samples per second; 0: not known
};

class Conductor {
 public:
  explicit Conductor(const Stretch& stretch);

  // Orders for the beginning.
  [[nodiscard]] std::vector<Order> begin();
  // The worker's gradient of what it was lent is on all servers. `push` has what the worker knows.
  // One that nobody waits for has no effect.
  [[nodiscard]] std::vector<Order> pushed(const Push& push);
  // No more samples are lent.
  [[nodiscard]] std::vector<Order> drain();
  // The stretch is cut off: the last orders, so that all that was added counts.
  [[nodiscard]] std::vector<Order> cut_off();

  bool is_over() const { return over_; }
  uint64_t version() const { return version_; }
  uint64_t dropped() const { return dropped_; }

 private:
  void lend();
  void lend(int worker, SampleRange samples);
  void lend_again();
  void meet(const Push& push);
  void close();
  void keep_to_those_there();
  void obey(const Consistency::Fate& fate);
  std::vector<Order> go_on();

  SampleRanges free_;
  const std::vector<int> workers_;
  const std::unique_ptr<Consistency> consistency_;
  Partition partition_;
  uint64_t version_;
  std::vector<int> idle_;  // workers with room for a lease, once for each, in the order of time
  std::map<int, std::deque<SampleRange>> lent_;  // by worker, in the order in which they come
  std::map<int, Push> waiting_;                  // gradients whose fate is not known
  bool added_ = false;                           // something was, that is in no update yet
  std::map<int, uint64_t> called_, met_;         // to how many meetings each was, and has told of
  bool draining_ = false, over_ = false;
  uint64_t dropped_ = 0;
  std::vector<Order> orders_;  // to be given
};

}  // namespace starling
