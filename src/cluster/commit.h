// The protocol by which a step happens for all workers or for none, whoever dies. Pure: it sends
// nothing, waits for nothing and knows no clock. A program hands in what happened and does, in
// order, what it is told (Action). docs/commit.md explains it, with a picture.
//
// Members walk through a step: working (own shards, exchange) → reduced (the sums are here) →
// applied. A member applies only when every member of its view has reduced: this is the commit.
// So when a worker is lost, the survivors know what became of the step in flight:
//   some survivor is still working on it: nobody can have committed, all redo it;
//   all survivors have reduced it: the lost one may have committed, all complete it.
// A Coordinator numbers the views. It is told of losses, newcomers and leavers, stops the members
// (Prepare), hears how far each came (Ready), and lets them go on together (Resume).
//
// Messages may come late or twice, and those of different senders in any order. Those of another
// view have no effect. One thread at a time.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

namespace starling::commit {

enum class Phase : uint8_t { kWorking, kReduced, kApplied };

struct Progress {
  int64_t step = 0;
  Phase phase = Phase::kWorking;
  auto operator<=>(const Progress&) const = default;
};

struct Message {
  enum class Kind : uint8_t {
    kReduced,  // member → members: my sums of `step` are complete
    kApplied,  // member → members: my part of the update of `step` is done
    kPrepare,  // coordinator → members: stop, a new view is being made of `members`
    kReady,    // member → coordinator: stopped at `progress`
    kResume,   // coordinator → members: go on at `step`
  };
  Kind kind = Kind::kReduced;
  int64_t view = 0;
  int from = -1;               // -1: the coordinator
  int64_t step = 0;            // of kReduced, kApplied, kResume
  bool finite = true;          // of kReduced: whether the sums are
  bool redo = false;           // of kResume: `step` is redone, not completed
  bool has_state = false;      // of kReady: false for a newcomer, which has nothing yet
  Progress progress;           // of kReady
  int64_t reduced_in = 0;      // of kReady: the view in which the step was reduced
  std::vector<int> members;    // of kResume, ascending; of kPrepare: all who are asked
  std::vector<int> newcomers;  // of kResume: those that wait for the state
  int donor = -1;              // of kResume: gives it to them
};

// What a program is told to do.
struct Action {
  enum class Kind : uint8_t {
    kSend,   // `message` to `to` (-1: the coordinator)
    kWork,   // compute and exchange own shards of `step` among `members`; tell reduced()
    kStop,   // stop working: when the next action runs, no lane and no exchange may
    kApply,  // apply own part of the update of `step`, which `members` share, or what the job says
             // for sums that are not finite; tell applied(). Parts that are done stay as they are.
    kSendState,   // give the state at the start of `step` to `to`, marked with `view`
    kAwaitState,  // take the state at the start of `step` from `to`; tell received_state()
    kRetire,      // this member is no longer wanted
  };
  Kind kind;
  int to = -1;
  int64_t view = 0;
  int64_t step = 0;
  bool finite = true;
  std::vector<int> members;
  Message message;
};

struct MemberOptions {
  int id = 0;
  // Whether all share one copy of the state and split its update: then the next step begins when
  // all have applied this one.
  bool shared_state = false;
  bool has_state = true;  // false: a newcomer
  int64_t step = 0;       // of the state that it has
};

class Member {
 public:
  explicit Member(const MemberOptions& options) : options_(options), at_{options.step} {}

  // Each returns what is to be done now.
  [[nodiscard]] std::vector<Action> receive(const Message& message);
  [[nodiscard]] std::vector<Action> reduced(int64_t step, bool finite);
  [[nodiscard]] std::vector<Action> applied(int64_t step);
  // What was told with reduced() is not so: the sums need a part that a lost member, or one that
  // stops, had not given. Only before the commit.
  void withdraw(int64_t step);
  // The update is not under way any more, though perhaps not done: its parts that are, stay. For a
  // program that has to wait for others within it.
  void suspend();
  // All members have said so, at once: where they meet at a barrier instead of sending messages.
  [[nodiscard]] std::vector<Action> heard_all(Message::Kind kind, int64_t step);
  [[nodiscard]] std::vector<Action> received_state(int64_t view, int64_t step);

  const Progress& progress() const { return at_; }
  int64_t view() const { return view_; }

 private:
  bool is_stopped() const { return prepared_ != view_; }
  void prepare(int64_t view);
  void resume(const Message& message);
  void note_peer(const Message& message);
  void send_ready();
  void tell_members(Message::Kind kind, int64_t step);
  void begin_step(int64_t step);
  void begin_apply(const std::vector<int>& appliers);
  void finish_apply();
  void go_on();

  const MemberOptions options_;
  bool has_state_ = options_.has_state;
  Progress at_;
  int64_t view_ = 0, prepared_ = 0;
  int64_t reduced_in_ = 0;
  bool finite_ = true;
  bool applying_ = false;
  std::vector<int> members_, newcomers_;
  int donor_ = -1;
  std::set<int> have_reduced_, have_applied_;  // of the members, at at_.step
  std::vector<Message> early_;                 // of a view, a step or a state to come
  std::vector<Action> actions_;
};

class Coordinator {
 public:
  // Joins and deaths are reported one by one; a view is made of those that are left.
  [[nodiscard]] std::vector<Action> joined(const std::vector<int>& workers);
  [[nodiscard]] std::vector<Action> died(int worker);
  [[nodiscard]] std::vector<Action> left(int worker);
  [[nodiscard]] std::vector<Action> receive(const Message& message);

  int64_t view() const { return view_; }
  const std::set<int>& members() const { return members_; }  // without those that are leaving
  // Whether all who had the state are gone: only a checkpoint can help.
  bool lost_state() const { return lost_state_; }

 private:
  std::vector<Action> new_view();
  std::vector<Action> resume();

  int64_t view_ = 0;
  std::set<int> members_, leaving_;
  std::vector<Message> ready_;  // in this view
  Progress redone_{-1};         // the last step that was redone …
  int64_t redone_in_ = 0;       // … and the view that did: sums from before are void
  // Newcomers of the last Resume that have not been heard of since, and their first step.
  std::map<int, int64_t> awaits_state_;
  bool lost_state_ = false;
};

}  // namespace starling::commit
