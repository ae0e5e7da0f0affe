// ParamPeer: the part of one process in the parameter service, for one stretch
// (param/conductor.h), as a machine that never blocks. It serves the slices that this process
// keeps, as their owner or as the one with the copy, and for the worker, if there is one here, it
// fetches weights and pushes gradients:
//
//   lent samples, and the weights of one version from all owners → the worker computes →
//   its gradient goes to all who keep slices → when they all have it, the conductor is told →
//   it orders what becomes of it; owner and copy obey alike, in the order of the log
//
// So an update counts when both have it, and whoever is lost, the others have made the same ones.
// A worker that dies in the middle of a push has given no gradient: nobody was told of it.
//
// Weights and gradients are sent; or, where processes see one another's desks, owners put the
// weights there, and all who keep slices read the gradient there. Then who has obeyed all orders
// before a lease says so in a word, and the worker begins when all have: till then they may read
// its last gradient.
//
// A worker may have several leases at a time, so that weights come while it computes. Then each has
// a seat of its own (desk.h), one after another in turns; everything above is true of each seat.
//
// One thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "base/function_ref.h"
#include "cluster/faults.h"
#include "fabric/fabric.h"
#include "param/conductor.h"
#include "param/kept_slice.h"
#include "param/update_plan.h"
#include "strategy/desk.h"
#include "strategy/meetings.h"
#include "strategy/ownership.h"
#include "strategy/slice_load.h"

namespace starling {

struct ParamPeerOptions {
  std::vector<int> names;      // of all members, by rank
  std::vector<bool> computes;  // likewise
  const ParameterSpace* space = nullptr;
  const Ownership* owners = nullptr;
  KeptSlice::StateAt state;
  UpdateRules rules;
  uint64_t version = 0, samples = 0;    // updates, and samples of the run, before
  std::vector<std::span<float>> seats;  // of the worker here: the weights of its leases
  bool meets = false;                   // it has weights of its own there, and averages in pairs
  const Desks* desks = nullptr;         // if there are any
  size_t bucket_bytes = kBucketBytes;
  std::function<void(FaultPoint)> pass = [](FaultPoint) {};  // where a fault may be planned
  // The time that this process works, and for how long it is to idle after so much of it.
  std::function<double()> clock = [] { return 0.0; };
  std::function<double(double seconds)> slow_down = [](double) { return 0.0; };
};

class ParamPeer {
 public:
  // All that the options name outlives this. The first seat has the weights of the whole space, the
  // same on all members. All members make it at the same time, in the same view.
  ParamPeer(Fabric& fabric, ParamPeerOptions options);
  ~ParamPeer();
  ParamPeer(const ParamPeer&) = delete;
  ParamPeer& operator=(const ParamPeer&) = delete;

  // The next order of the log.
  void obey(const Order& order);
  // Looks at what is under way. Whether something has changed: if not, the next is to wait for the
  // fabric, or for an order.
  bool advance();
  // The stretch is cut off: nothing is under way any more. Orders are obeyed all the same.
  void cut_off(const Failure& why);

  // Of the worker here: samples, when their weights have come.
  struct Lease {
    SampleRange samples;
    uint64_t version = 0, trained = 0;  // updates and samples of the run before it
    size_t seat = 0;
    bool dropped = false;      // the last gradient at this seat was; else it was applied
    Instant pushed{}, lent{};  // when all had that one, and when these samples were lent
  };
  std::optional<Lease> take_lease();
  // A bucket of the gradient of the whole space is complete: it may be on its way while the others
  // are computed. Each at most once before push().
  void push_bucket(std::span<const float> gradient, size_t bucket);
  // The gradient is complete: it stays until the next lease at its seat is taken.
  void push(std::span<const float> gradient, const Push& push);
  // Whether another has handed in what the worker here computes, or may compute: it need not.
  bool is_outdone() const { return outdone_; }
  // The one that was being pushed, when all have it: the conductor is to be told.
  std::optional<Push> take_pushed();

  // Whether gradients need no push(): all see them at the worker's desk.
  bool has_desks() const { return options_.desks != nullptr && !options_.desks->empty(); }
  // Those of push_bucket(); none where nothing is sent.
  std::span<const Bucket> buckets() const { return buckets_; }

  bool is_over() const { return over_ && (!meetings_ || meetings_->is_over()); }
  // Of the worker here; none where there are none.
  Meetings* meetings() { return meetings_ ? &*meetings_ : nullptr; }
  const Status& status() const { return status_; }  // a failure cuts it off

  // Brings the weights of the first seat up to date in the slices that are kept here.
  void take_over();
  // Every order that was obeyed.
  const std::vector<Order>& log() const { return log_; }
  uint64_t version() const { return version_; }
  // At the desks of others.
  uint64_t bytes_moved() const { return bytes_moved_; }
  // What was served.
  const ServedLoad& load() const { return load_; }

 private:
  // What of a slice is in a bucket: a gradient is sent in these.
  struct Piece {
    size_t slice, bucket;
    Span floats;
    Tag tag(size_t seat) const;
  };
  struct Kept {
    bool owns;  // else it is a copy
    std::vector<Piece> pieces;
    KeptSlice slice;
  };
  // A seat of a worker, as a server sees it.
  struct Client {
    std::vector<Ticket> gradients;  // the pieces of kept slices; being received
    Ticket word;                    // being sent
    std::vector<Ticket> weights;    // by kept slice; being sent
    std::vector<Buffer<float>> sent;
    bool awaited = false;  // its next gradient is
  };
  // A server, as the worker sees it.
  struct Server {
    int rank;
    size_t owned;               // slice
    std::vector<Piece> pieces;  // of that one, and the one that it copies
    struct UnderWay {
      Ticket weights, acknowledgement;
      std::vector<Ticket> gradients;  // by piece; being sent
      uint64_t word = 0;
    };
    std::vector<UnderWay> seats;
  };
  // Leases of a worker, in the order of the log: the n-th is at seat n modulo their number.
  struct Count {
    size_t lent = 0, settled = 0;
  };
  // Of the worker here.
  struct OwnSeat {
    std::span<float> weights;
    std::span<const float> gradient;
    enum class Step : uint8_t { kIdle, kFetching, kFetched, kPushing, kPushed } step = Step::kIdle;
    Lease lease;
    Push push;
    bool dropped = false;  // the last gradient
  };

  int rank_of(int name) const;
  int name_of(int rank) const { return options_.names[static_cast<size_t>(rank)]; }
  std::vector<Piece> pieces_of(size_t slice) const;
  void keep_slices();
  void meet_members();
  // What this process does for others, in its working time.
  void serve(FunctionRef<void()> work);
  void lend(int worker, SampleRange samples);
  void fetch(size_t seat, SampleRange samples);
  void hand_weights(int rank, size_t seat);
  void apply(const std::vector<Push>& pushes);
  void add(const std::vector<Push>& pushes);
  // The seat of the gradient whose fate is the next to be known.
  size_t settling(int worker) { return counts_[worker].settled % seats_.size(); }
  const float* gradient_of(int worker, Kept& kept);
  void await_gradient(int rank, size_t seat);
  // The fate of its oldest gradient is known.
  void settle(int worker);
  void meet(const Order& order);
  bool look_at_clients();
  bool look_at_servers();
  bool look_at_servers(size_t seat);
  // Whether the transfer is over; a failed one is the failure of the stretch.
  bool is_over(Ticket& ticket);
  bool are_over(std::vector<Ticket>& tickets);
  void cancel_all();

  Fabric& fabric_;
  const ParamPeerOptions options_;
  const std::vector<Bucket> buckets_;
  std::vector<Kept> kept_;
  std::map<int, std::vector<Client>> clients_;  // by rank, without this one; then by seat
  std::vector<Server> servers_;                 // without this one
  std::map<int, Count> counts_;                 // by name
  std::vector<Order> log_;
  uint64_t samples_added_ = 0;  // in no update yet
  bool outdone_ = false;        // at its last lease
  uint64_t version_, samples_;
  uint64_t bytes_moved_ = 0;
  ServedLoad load_;
  bool over_ = false;
  std::optional<Meetings> meetings_;
  Status status_;

  std::vector<OwnSeat> seats_;
  // Of all its leases so far: how many were taken, their gradients pushed, and their pushes told.
  size_t taken_ = 0, pushed_ = 0, told_ = 0;
  Instant pushed_at_{};     // when all had the last gradient
  std::vector<bool> sent_;  // buckets of the one that is being computed
};

}  // namespace starling
