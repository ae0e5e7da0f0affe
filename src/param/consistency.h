// Consistency: when a worker of the parameter service may begin another gradient, and what becomes
// of one that has come. One class for each policy; docs/parameter_service.md says when to use
// which.
//
// Pure: told what happened, it answers. Workers are meant by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace starling {

struct ConsistencyOptions {
  std::string name = "async";  // "async", "ssp", "backup", "tasks" or "gossip"
  int staleness = 3;           // of ssp: by how many gradients a worker may be ahead of the slowest
  int backup = 1;              // of backup: how many gradients a round does not wait for
  uint64_t tasks = 0;          // of tasks: what a round is cut into; 0: one for each worker
  bool ring = false;           // of gossip: workers meet their neighbours by name, else any
  uint64_t seed = 0;           // of gossip
};

class Consistency {
 public:
  virtual ~Consistency() = default;

  // Whether the worker, which has room for it, may be lent the samples of a gradient.
  virtual bool may_begin(int worker) const = 0;
  // It is.
  virtual void begin(int worker) = 0;

  // What becomes of gradients that have come, by worker.
  struct Fate {
    std::vector<int> applied;   // make the next update together; empty: there is none yet
    std::vector<int> dropped;   // came too late: their samples are free again
    std::vector<int> added;     // count in an update to come, and need not be kept for it
    std::vector<int> repeated;  // of samples whose gradient was added before
    bool closes = false;        // all that was added makes an update
  };
  // The gradient of a worker has come.
  virtual Fate arrive(int worker) = 0;
  // All that may begin and have samples have begun: what waits for others need not, if none of them
  // has a gradient under way.
  virtual Fate look() { return {}; }
  // Workers whose samples one that rests may be lent too, the oldest first: who hands in first,
  // counts.
  virtual std::vector<int> to_repeat() const { return {}; }
  // It is lent those of `other`.
  virtual void repeat(int /*worker*/, int /*other*/) {}

  // With whom of those who are free the worker is to average its weights, after so many updates.
  virtual std::optional<int> partner(int /*worker*/, const std::set<int>& /*free*/,
                                     uint64_t /*version*/) {
    return std::nullopt;
  }

  // Only these take part from now on: they have samples left, or a gradient that has not been
  // applied. Nobody waits for the others.
  virtual void keep_to(const std::set<int>& /*workers*/) {}

  // How many gradients a round does not wait for.
  virtual size_t spare() const { return 0; }
  // How many leases a round is cut into; 0: as many as there are workers to wait for.
  virtual uint64_t tasks() const { return 0; }
  // Whether others may have to wait for a gradient that takes long.
  virtual bool waits() const { return true; }
  // Whether a worker may be lent samples while it computes with others.
  virtual bool lends_ahead() const { return true; }
};

// For these workers. Throws Error for a name that is not known and numbers that make no sense.
std::unique_ptr<Consistency> make_consistency(const ConsistencyOptions& options,
                                              const std::vector<int>& workers);

}  // namespace starling
