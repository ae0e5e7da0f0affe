// ParamService: this process's part in the parameter service, for one stretch (param/conductor.h).
// A thread of its own has the fabric meanwhile. It serves the slices that this process keeps, as
// their owner or as the one with the copy, and for the worker, if there is one here, it pushes
// gradients and fetches weights:
//
//   lent samples, and the weights of one version from all owners → the worker computes →
//   its gradient goes to all who keep slices → when they all have it, the conductor is told →
//   it orders what becomes of it; owner and copy obey alike, in the order of the log
//
// So an update counts when both have it, and whoever is lost, the others have made the same ones.
// A worker that dies in the middle of a push has given no gradient: nobody was told of it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "cluster/world.h"
#include "param/conductor.h"
#include "param/kept_slice.h"
#include "param/update_plan.h"
#include "strategy/background_lane.h"
#include "strategy/ownership.h"

namespace starling {

struct ParamServiceOptions {
  const ParameterSpace* space = nullptr;
  const Ownership* owners = nullptr;
  KeptSlice::StateAt state;
  UpdateRules rules;
  uint64_t version = 0, samples = 0;  // updates, and samples of the run, before
};

class ParamService {
 public:
  // `weights` is the whole space, the same on all members; the worker's own copy from now on. All
  // outlive this. All members make it at the same time, in the same view.
  ParamService(World& world, const ParamServiceOptions& options, std::span<float> weights);
  // Without finish(): gives up what is under way.
  ~ParamService();

  // For the worker. Waits for samples and their weights; nothing when there are no more in this
  // stretch, or it was cut off.
  struct Lease {
    SampleRange samples;
    uint64_t version = 0;
    // When the gradient before was on all servers, and when these samples were lent.
    std::chrono::steady_clock::time_point pushed, lent;
  };
  std::optional<Lease> next();
  // The gradient of what it was lent, of the whole space; it stays until next() returns.
  void push(std::span<const float> gradient, const Push& push);

  // Waits for the end of the stretch. A failure says why it was cut off: then the next is to reform
  // the world.
  Status finish();
  // After that: makes the updates that were ordered before the new view, and brings `weights` up to
  // date in the slices that are kept here.
  void settle();

  // Every order that was obeyed. After settle().
  const std::vector<Order>& log() const { return log_; }
  uint64_t version() const { return version_; }

 private:
  struct Kept {
    size_t number;
    bool owns;  // else it is a copy
    KeptSlice slice;
  };
  // A worker, as a server sees it.
  struct Client {
    std::vector<Ticket> gradients;  // by kept slice; being received
    Ticket acknowledgement;
    std::vector<Ticket> weights;  // by kept slice; being sent
    std::vector<Buffer<float>> sent;
    bool awaited = false;  // its next gradient is
  };
  // A server, as the worker sees it.
  struct Server {
    int rank;
    size_t owned;              // slice
    std::vector<size_t> kept;  // that one, and the one that it copies
    Ticket weights, acknowledgement;
    std::vector<Ticket> gradients;
    uint64_t word = 0;
  };

  void serve();
  void obey(const Order& order);
  void lend(int worker, SampleRange samples);
  void apply(const std::vector<Push>& pushes);
  void await_gradient(int rank);
  void start_push();
  // Each returns whether something has changed.
  bool look_at_clients();
  bool look_at_servers();
  // Whether the transfer is over; a failed one is the failure of the stretch.
  bool is_over(Ticket& ticket);
  bool are_over(std::vector<Ticket>& tickets);
  void cancel_all();
  void take_over(const Kept& kept);  // its weights

  World& world_;
  Fabric& fabric_;
  const ParamServiceOptions options_;
  const std::span<float> weights_;
  std::vector<Kept> kept_;
  std::map<int, Client> clients_;  // by rank; without this one
  std::vector<Server> servers_;    // without this one
  std::vector<Order> log_;
  uint64_t version_, samples_;
  bool over_ = false;
  Status failure_;

  // Of the worker here, if it computes.
  enum class Step : uint8_t { kIdle, kFetching, kComputing, kPushing } step_ = Step::kIdle;
  Lease fetched_;

  std::mutex mutex_;  // guards what both threads use
  std::condition_variable changed_;
  std::optional<Lease> ready_;
  std::optional<Push> wanted_;  // to be pushed
  std::span<const float> gradient_;
  bool ended_ = false;
  std::atomic<bool> abandoned_{false};

  BackgroundLane thread_;  // last: it uses all of the above
};

}  // namespace starling
