// World: this process's place among the workers of a job, and its means to talk to them. Every
// worker makes the same calls in the same order; each waits for the others at most `timeout`. A
// worker that is lost meanwhile is a LostWorker, thrown by all others.
//
// In a world that survives (one with a launcher that coordinates), work is cut into units: steps of
// training, and whatever else workers do together. A unit happens for all or for none, by the
// protocol of commit.h: after a LostWorker, reform() makes the world anew without the lost, and
// says whether the unit is to be redone or completed. Then rank() and workers() are others; a
// worker keeps its name(). Units that are functions of what all have are simply wrapped in agree().
//
// One thread at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/function_ref.h"
#include "base/lost_worker.h"
#include "cluster/commit.h"
#include "cluster/faults.h"
#include "cluster/membership.h"
#include "cluster/recovery.h"
#include "cluster/worker_place.h"
#include "collective/collectives.h"
#include "fabric/shm/shm_fabric.h"

namespace starling {

class World {
 public:
  // One worker, which talks to nobody.
  World();
  // Meets the others. Throws Error when they can't be reached.
  explicit World(const WorkerPlace& place);
  ~World();

  int rank() const { return rank_; }
  int workers() const { return static_cast<int>(members_.size()); }
  bool is_chief() const { return rank() == 0; }
  // What this worker is called for the whole run; and what the one of that rank is.
  int name() const { return place_.rank; }
  std::span<const int> members() const { return members_; }  // names, by rank
  int name_of(int rank) const { return members_[static_cast<size_t>(rank)]; }
  int rank_of(int name) const;  // workers() if it is not there
  // Some workers may only serve: they keep parameters, and compute no shards. Where there are none,
  // or none but these, all do both.
  bool serves(int rank) const { return !has_roles() || is_server(rank); }
  bool computes(int rank) const { return !has_roles() || !is_server(rank); }
  int computing() const;  // how many do
  std::vector<int> computing_names() const;
  // Whether all workers share one state, in memory that all of them see.
  bool shares_memory() const { return is_of_one_host() && !place_.apart; }
  // Whether there are fewer cores than workers: then one lane is enough for each.
  bool is_crowded() const { return place_.crowded; }
  // Whether each has its own, but lets the others see where it computes (strategy/desk.h).
  bool has_desks() const { return is_of_one_host() && place_.apart; }
  std::chrono::nanoseconds timeout() const { return place_.patience; }

  // Throws Error when there are fewer shards in a batch than workers.
  void require_shards(int shards) const;

  // Null in a world of one.
  Fabric* fabric() { return fabric_.get(); }
  ShmFabric* shm() { return shm_; }
  // Becomes true when all that waits has to be given up, because a new view is being made. Null in
  // a world that does not survive.
  const std::atomic<bool>* interrupt() const {
    return membership_ ? &membership_->interrupted() : nullptr;
  }

  // While one exists, this worker waits: for others, or for who is to take what it writes.
  class Waiting {
   public:
    explicit Waiting(const World& world) : membership_(world.membership_.get()) {
      if (membership_ != nullptr) membership_->begin_waiting();
    }
    ~Waiting() {
      if (membership_ != nullptr) membership_->end_waiting();
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Membership* const membership_;
  };

  // This worker passes a point at which the plan may have a fault for it; by default there is none.
  // From any thread.
  void pass(FaultPoint point) const {
    if (!faults_.empty()) faults_.pass(name(), point, step_);
  }
  // The step for such points alone, of one that makes none, or has steps of its own; from any
  // thread.
  void set_step_served(uint64_t step) { step_ = step; }
  // This worker has computed for so many seconds: where the plan slows it, it idles for as long as
  // is returned.
  double slow_down(double computed_s) const;
  // While one exists, this worker computes, on this thread and others: then that is done. What this
  // thread waits for a core is no computing, if it is alone.
  class Computing {
   public:
    Computing(const World& world, int lanes);
    ~Computing();
    Computing(const Computing&) = delete;
    Computing& operator=(const Computing&) = delete;

   private:
    double seconds() const;

    const World& world_;
    const bool alone_;
    const double begin_;
  };
  void plan_faults(std::vector<Fault> plan);
  Faults& faults() { return faults_; }
  // The step of the run, from 1, and how many it has: for those points, and for people who ask.
  void set_step(uint64_t step, uint64_t steps) {
    step_ = step;
    tell_step(step, steps);
  }
  // For people alone.
  void tell_step(uint64_t step, uint64_t steps) {
    if (membership_) membership_->set_step(step, steps);
  }
  // The run is in that folder, and can have so many workers: people may ask for it from now on.
  void open_to_requests(const std::string& folder, uint64_t workers_most);

  // Memory of all workers, zeroed; all ask for the same. Requires shares_memory().
  SharedSegment share(const std::string& name, size_t bytes);

  // The segment that the worker of that rank has at that descriptor of its process. Of one that
  // ends meanwhile there is none: it is lost.
  SharedSegment open_shared(int rank, int64_t process, int64_t descriptor) const;

  void barrier(const char* what);
  // The chief's bytes, everywhere.
  void broadcast(const char* what, std::span<std::byte> bytes);
  // Rank r's part of `all` is bytes cuts[r] … cuts[r + 1]; each has filled in its own.
  void all_gather(const char* what, std::span<std::byte> all, std::vector<size_t> cuts);

  // What each has, by rank; as many on all.
  template <typename T>
  std::vector<T> gather(const char* what, std::span<const T> own) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(own.size() * static_cast<size_t>(workers()));
    std::copy(own.begin(), own.end(),
              all.begin() + static_cast<std::ptrdiff_t>(own.size()) * rank());
    std::vector<size_t> cuts;
    for (int r = 0; r <= workers(); ++r) cuts.push_back(static_cast<size_t>(r) * own.size_bytes());
    all_gather(what, std::as_writable_bytes(std::span(all)), std::move(cuts));
    return all;
  }

  // What the one of rank `from` has, to the one of rank `to`; `in` is as long there. All call it,
  // and agree on the number of bytes; the spans of the others are not used.
  struct Handover {
    int from, to;
    size_t bytes;
    std::span<const std::byte> out = {};
    std::span<std::byte> in = {};
  };
  void hand_over(const char* what, const Handover& given);

  // What messages between workers cost: measured when it is asked for first, then kept through all
  // changes. The same on every worker; all call it.
  LinkCosts link_costs();
  const std::optional<LinkCosts>& measured_link() const { return costs_; }

  // The first worker whose text is not the chief's, and the first line that differs; the same
  // answer on every worker, and nothing when all are alike.
  struct Difference {
    int worker;         // its name
    std::string lines;  // "this" against "that"
  };
  std::optional<Difference> compare(const char* what, const std::string& text);
  // Throws Error, on every worker, when they differ: for what must be equal before training begins.
  void require_same(const char* what, const std::string& text);

  // --- Surviving, and change ---

  bool survives() const { return membership_ != nullptr; }
  // The most workers that there may ever be.
  int capacity() const { return std::max(place_.workers, kCapacity); }
  static constexpr int kCapacity = 32;  // or as many as the job began with
  // Numbers the worlds there have been: 1 at first.
  int64_t view() const { return view_; }
  // The fabrics of earlier worlds are of no more use.
  void forget_former() { former_.clear(); }

  // A unit: calls `work`, again in another world for as long as workers are lost during it. When it
  // returns, all have done it, or will.
  void agree(const char* what, FunctionRef<void()> work);

  // The parts of a unit that is not so simple, in this order. announce(): what this worker gives to
  // the unit is there, and all that it needs for completing it, but for what others announce.
  void announce();
  // What was announced can't be completed without something that is still to come.
  void retract();
  // All have announced (they have met, or have sent word): from here on the unit will be completed.
  void begin_completion();
  // This worker has done its part. Waits for the others where they share memory; ends the unit.
  Status complete();

  // Whether workers are to join or leave: to be agreed on, and followed by change().
  bool wants_change() const { return membership_ && membership_->wants_change(); }
  // Between two units, by all: waits until the launcher has let workers in and out. It decides how
  // long that takes. Throws RetiredWorker in one that is out.
  void change();

  // Workers that train apart (param/conductor.h), between two units: the chief begins the stretch,
  // and all obey the launcher's conductor. Requires survives(). drain() asks for the stretch's end.
  void begin_stretch(const Stretch& stretch);
  std::vector<Order> take_orders() { return membership_->take_orders(); }
  void forget_orders() { membership_->forget_orders(); }
  void tell_pushed(const Push& push);
  void drain();
  bool launcher_is_gone() const { return membership_->launcher_is_gone(); }
  // This worker gets on.
  void note_progress() { membership_->note_progress(); }
  // What it has done before counts: only its work since then is lost with another worker.
  void set_work_began(Instant began) { unit_began_ = began; }

  // A worker that was started when the others were under way is a newcomer until it has the state.
  // join() waits to be let in; take_state() for what the donor gives: it has the state when `use`
  // has returned, and takes another's if the donor, of that rank, is lost before.
  bool is_newcomer() const { return member_ && !has_state_; }
  void join();
  void take_state(FunctionRef<void(int donor, std::vector<std::byte> state)> use);
  // Whether this worker is the donor of newcomers, who wait for the state between two units.
  bool is_donor() const { return donor_ == name() && !newcomers_.empty(); }
  void give_state(std::span<const std::byte> state);

  enum class Next { kRedo, kComplete };
  // After `lost`: waits for the new view, and enters it. `can_complete` is asked whether what this
  // worker has announced holds without the workers of these ranks (of the world before).
  // kComplete: do what is left of the unit after begin_completion(), with the workers there are
  // now, then complete(). Throws `lost` when no view is made, or this world does not survive.
  Next reform(const LostWorker& lost, FunctionRef<bool(std::span<const int> ranks)> can_complete);

  // What reform() did, each time.
  const std::vector<Recovery>& recoveries() const { return recoveries_; }
  // Of a newcomer: what there was before it came.
  void set_recoveries(std::vector<Recovery> all) { recoveries_ = std::move(all); }
  // Called at the end of reform(). Null: nobody.
  void tell_recoveries(std::function<void(const Recovery&)> told) { told_ = std::move(told); }

 private:
  bool is_of_one_host() const {
    return place_.descriptor >= 0 && place_.fabric == FabricKind::kShm;
  }
  bool has_roles() const { return !servers_.empty() && servers_.size() < members_.size(); }
  bool is_server(int rank) const;
  void wait(const char* what, Collectives::Handle handle);
  void wait_for(const char* what, Ticket ticket);
  void require(const char* what, const Status& status) const;
  bool can_talk(const char* what) const;  // throws when there should be others and are none
  Status meet();
  void enter(const WorkerPlace& means);
  void resume(ControlMessage message);
  void take_over_output();
  void send_surely(ControlMessage::Kind kind, std::vector<uint64_t> words);
  void send(const std::vector<commit::Action>& actions);
  Next reform_by(Instant deadline, const LostWorker& lost,
                 FunctionRef<bool(std::span<const int> ranks)> can_complete);

  WorkerPlace place_;
  int rank_ = 0;
  std::vector<int> members_{0};  // names, by rank
  std::vector<int> servers_;     // those of them that are to serve only
  int64_t view_ = kFirstView;
  bool has_state_ = true;
  std::vector<int> newcomers_;  // of the view, that have not got the state
  int donor_ = -1;
  int64_t first_unit_ = 0;  // of newcomers
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<commit::Member> member_;
  std::unique_ptr<Fabric> fabric_;
  ShmFabric* shm_ = nullptr;
  std::unique_ptr<Collectives> collectives_;
  std::optional<LinkCosts> costs_;
  // Those of earlier views: a unit that is completed still reads what they hold.
  std::vector<std::unique_ptr<Fabric>> former_;
  Faults faults_;
  std::atomic<uint64_t> step_{0};
  Instant unit_began_ = std::chrono::steady_clock::now();
  std::vector<Recovery> recoveries_;
  std::function<void(const Recovery&)> told_;
};

}  // namespace starling
