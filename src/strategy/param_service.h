// ParamService: this process's part in the parameter service (param_peer.h), for one stretch, on a
// thread of its own that has the fabric meanwhile, so that slices are served while the worker
// computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "cluster/world.h"
#include "strategy/background_lane.h"
#include "strategy/param_peer.h"

namespace starling {

class ParamService {
 public:
  // As of ParamPeer; `options` has all but the members, which are those of the world. After every
  // update, and then every 100 ms, `is_enough` is asked whether the stretch is to end with so many
  // of them, until it is: on the other thread.
  using IsEnough = std::function<bool(uint64_t updates)>;
  ParamService(World& world, ParamPeerOptions options, IsEnough is_enough);
  // Without finish(): gives up what is under way.
  ~ParamService();

  // For the worker. Waits for samples and their weights; nothing when there are no more in this
  // stretch, or it was cut off.
  std::optional<ParamPeer::Lease> next();
  // Buckets of its gradient may be pushed before the rest of it is there, by any thread.
  std::span<const Bucket> buckets() const { return peer_.buckets(); }
  void push_bucket(std::span<const float> gradient, size_t bucket);
  // Whether another has handed in what the worker was lent last: it may give that up.
  bool is_outdone() const { return outdone_; }
  // Between two steps that it makes by itself: averages with others, if it is to.
  void meet();
  // How many such meetings are over, and what they took.
  uint64_t met() { return peer_.meetings() == nullptr ? 0 : peer_.meetings()->count(); }
  Meetings::Seconds meeting_seconds() {
    return peer_.meetings() == nullptr ? Meetings::Seconds() : peer_.meetings()->seconds();
  }
  // The gradient of what it was lent, of the whole space; it stays until next() returns a lease at
  // its seat.
  void push(std::span<const float> gradient, const Push& push);
  // For which buckets were on their way before the rest of their gradients.
  double hidden_seconds() const { return hidden_; }

  // Waits for the end of the stretch. A failure says why it was cut off: then the next is to reform
  // the world.
  Status finish();
  // After that: makes the updates that were ordered before the new view, and brings the weights of
  // the first seat up to date in the slices that are kept here.
  void settle();

  // Every order that was obeyed so far: after finish(), or all of them after settle().
  const std::vector<Order>& log() const { return peer_.log(); }
  uint64_t version() const { return peer_.version(); }
  uint64_t bytes_moved() const { return peer_.bytes_moved(); }
  const ServedLoad& load() const { return peer_.load(); }

 private:
  // While one exists, the worker waits for the service, which gets on for it.
  class Waits {
   public:
    explicit Waits(ParamService& service) : service_(service) { service_.wait(true); }
    ~Waits() { service_.wait(false); }
    Waits(const Waits&) = delete;
    Waits& operator=(const Waits&) = delete;

   private:
    ParamService& service_;
  };

  void serve();
  void drain_if_enough();
  void end();
  void wait(bool waits);
  void give(std::span<const float> gradient, std::variant<size_t, Push> what);
  // Between the worker and the peer. Whether there was something.
  bool pass_on();

  World& world_;
  Fabric& fabric_;
  ParamPeer peer_;
  const uint64_t first_version_;
  const IsEnough is_enough_;
  bool drains_ = false;

  std::mutex mutex_;  // guards what both threads use
  std::condition_variable changed_;
  std::deque<ParamPeer::Lease> ready_;
  // To be pushed: a gradient, or a bucket of one.
  struct Given {
    std::span<const float> gradient;
    std::variant<size_t, Push> what;
  };
  std::deque<Given> given_;
  std::optional<Instant> early_since_;  // buckets of the gradient that is computed are given
  double hidden_ = 0;
  bool ended_ = false;
  std::atomic<bool> abandoned_{false}, waits_{false}, outdone_{false};
  // Gradients at the desk that were told of. The order to read one comes by way of the launcher,
  // which the language knows nothing of: this is what says that it was written before.
  std::atomic<uint64_t> told_{0};

  BackgroundLane thread_;  // last: it uses all of the above
};

}  // namespace starling
