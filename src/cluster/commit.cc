#include "cluster/commit.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace starling::commit {
namespace {

bool holds_all(const std::set<int>& those, const std::vector<int>& all) {
  return std::all_of(all.begin(), all.end(), [&](int id) { return those.contains(id); });
}

bool holds(const std::vector<int>& all, int id) {
  return std::find(all.begin(), all.end(), id) != all.end();
}

Action send(int to, Message message) {
  return {.kind = Action::Kind::kSend, .to = to, .message = std::move(message)};
}

}  // namespace

std::vector<Action> Member::receive(const Message& message) {
  using Kind = Message::Kind;
  switch (message.kind) {
    case Kind::kPrepare:
      prepare(message.view);
      break;
    case Kind::kResume:
      resume(message);
      break;
    case Kind::kReduced:
    case Kind::kApplied:
      note_peer(message);
      break;
    case Kind::kReady:
      break;  // for the coordinator
  }
  return std::exchange(actions_, {});
}

std::vector<Action> Member::reduced(int64_t step, bool finite) {
  const bool expected = !is_stopped() && has_state_ && at_ == Progress{step, Phase::kWorking};
  if (expected) {  // otherwise it came too late: the view has changed
    at_.phase = Phase::kReduced;
    reduced_in_ = view_;
    finite_ = finite;
    have_reduced_.insert(options_.id);
    tell_members(Message::Kind::kReduced, step);
    go_on();
  }
  return std::exchange(actions_, {});
}

void Member::withdraw(int64_t step) {
  if (applying_ || at_ != Progress{step, Phase::kReduced}) return;
  at_.phase = Phase::kWorking;
  have_reduced_.clear();
}

void Member::suspend() {
  if (std::exchange(applying_, false)) at_.phase = Phase::kReduced;
}

std::vector<Action> Member::heard_all(Message::Kind kind, int64_t step) {
  const bool expected = !is_stopped() && !applying_ && step == at_.step;
  if (expected) {
    (kind == Message::Kind::kReduced ? have_reduced_ : have_applied_) =
        std::set<int>(members_.begin(), members_.end());
    go_on();
  }
  return std::exchange(actions_, {});
}

std::vector<Action> Member::applied(int64_t step) {
  if (applying_ && step == at_.step) {
    applying_ = false;
    at_.phase = Phase::kApplied;
    finish_apply();
  }
  return std::exchange(actions_, {});
}

std::vector<Action> Member::received_state(int64_t view, int64_t step) {
  if (!is_stopped() && view == view_ && !has_state_) {
    has_state_ = true;
    begin_step(step);
  }
  return std::exchange(actions_, {});
}

void Member::prepare(int64_t view) {
  if (view <= prepared_) return;
  const bool was_stopped = is_stopped();
  prepared_ = view;
  // An update that has begun is finished first: it needs nobody else.
  if (applying_) return;
  if (!was_stopped && has_state_) actions_.push_back({.kind = Action::Kind::kStop});
  send_ready();
}

void Member::send_ready() {
  actions_.push_back(send(-1, {.kind = Message::Kind::kReady,
                               .view = prepared_,
                               .from = options_.id,
                               .has_state = has_state_,
                               .progress = at_,
                               .reduced_in = reduced_in_}));
}

void Member::resume(const Message& message) {
  if (message.view != prepared_ || message.view == view_) return;
  view_ = message.view;
  if (!holds(message.members, options_.id)) {
    actions_.push_back({.kind = Action::Kind::kRetire});
    return;
  }
  members_ = message.members;
  newcomers_ = message.newcomers;
  donor_ = message.donor;
  have_reduced_.clear();
  have_applied_.clear();
  if (!has_state_) {
    at_ = {message.step, Phase::kWorking};
    if (!message.redo && options_.shared_state) {
      tell_members(Message::Kind::kApplied, message.step);  // it has no part in that update
    }
    actions_.push_back({.kind = Action::Kind::kAwaitState,
                        .to = message.donor,
                        .view = view_,
                        .step = message.redo ? message.step : message.step + 1});
  } else if (message.redo) {
    if (at_ > Progress{message.step, Phase::kReduced}) {
      throw std::logic_error("a committed step would be redone");
    }
    begin_step(message.step);
  } else if (at_.step > message.step) {
    if (options_.shared_state) tell_members(Message::Kind::kApplied, message.step);
    begin_step(at_.step);
  } else {
    if (at_.phase == Phase::kWorking) {
      throw std::logic_error("a step would be completed without its sums");
    }
    std::vector<int> appliers = members_;
    std::erase_if(appliers, [&](int id) { return holds(newcomers_, id); });
    begin_apply(appliers);
  }
  for (const Message& early : std::exchange(early_, {})) note_peer(early);
}

void Member::note_peer(const Message& message) {
  if (message.view < view_ || (message.view == view_ && message.step < at_.step)) return;
  if (message.view > view_ || message.step > at_.step || !has_state_) {
    early_.push_back(message);
    return;
  }
  if (is_stopped()) return;
  if (message.kind == Message::Kind::kReduced) {
    if (at_.phase != Phase::kWorking && message.finite != finite_) {
      throw std::logic_error("members disagree on the sums of a step");
    }
    have_reduced_.insert(message.from);
  } else {
    have_applied_.insert(message.from);
  }
  go_on();
}

// What the messages so far allow.
void Member::go_on() {
  if (applying_ || is_stopped() || !has_state_) return;
  if (at_.phase == Phase::kReduced && holds_all(have_reduced_, members_)) begin_apply(members_);
  if (at_.phase == Phase::kApplied && holds_all(have_applied_, members_)) begin_step(at_.step + 1);
}

void Member::begin_apply(const std::vector<int>& appliers) {
  applying_ = true;
  actions_.push_back({.kind = Action::Kind::kApply,
                      .view = view_,
                      .step = at_.step,
                      .finite = finite_,
                      .members = appliers});
}

void Member::finish_apply() {
  // With a state of its own, a member that has applied is at the next step.
  if (!options_.shared_state) {
    if (is_stopped()) {
      at_ = {at_.step + 1, Phase::kWorking};
    } else {
      begin_step(at_.step + 1);
    }
  } else if (!is_stopped()) {
    have_applied_.insert(options_.id);
    tell_members(Message::Kind::kApplied, at_.step);
    go_on();
  }
  if (is_stopped()) send_ready();
}

void Member::begin_step(int64_t step) {
  at_ = {step, Phase::kWorking};
  have_reduced_.clear();
  have_applied_.clear();
  if (donor_ == options_.id) {
    for (int newcomer : std::exchange(newcomers_, {})) {
      actions_.push_back(
          {.kind = Action::Kind::kSendState, .to = newcomer, .view = view_, .step = step});
    }
  }
  actions_.push_back(
      {.kind = Action::Kind::kWork, .view = view_, .step = step, .members = members_});
  for (const Message& early : std::exchange(early_, {})) note_peer(early);
}

void Member::tell_members(Message::Kind kind, int64_t step) {
  for (int id : members_) {
    if (id == options_.id) continue;
    actions_.push_back(send(
        id, {.kind = kind, .view = view_, .from = options_.id, .step = step, .finite = finite_}));
  }
}

std::vector<Action> Coordinator::joined(const std::vector<int>& workers) {
  members_.insert(workers.begin(), workers.end());
  return new_view();
}

std::vector<Action> Coordinator::died(int worker) {
  const size_t known = members_.erase(worker) + leaving_.erase(worker);
  return known == 0 ? std::vector<Action>{} : new_view();
}

std::vector<Action> Coordinator::left(int worker) {
  if (members_.erase(worker) == 0) return {};
  leaving_.insert(worker);
  return new_view();
}

std::vector<Action> Coordinator::new_view() {
  ++view_;
  ready_.clear();
  Message prepare{.kind = Message::Kind::kPrepare, .view = view_};
  std::set_union(members_.begin(), members_.end(), leaving_.begin(), leaving_.end(),
                 std::back_inserter(prepare.members));
  std::vector<Action> actions;
  for (const int id : prepare.members) actions.push_back(send(id, prepare));
  return actions;
}

std::vector<Action> Coordinator::receive(const Message& message) {
  if (message.kind != Message::Kind::kReady || message.view != view_) return {};
  if (!members_.contains(message.from) && !leaving_.contains(message.from)) return {};
  const bool known = std::any_of(ready_.begin(), ready_.end(),
                                 [&](const Message& m) { return m.from == message.from; });
  if (known) return {};
  ready_.push_back(message);
  return ready_.size() == members_.size() + leaving_.size() ? resume() : std::vector<Action>{};
}

std::vector<Action> Coordinator::resume() {
  Message resume{
      .kind = Message::Kind::kResume, .view = view_, .members = {members_.begin(), members_.end()}};
  Progress least{INT64_MAX};
  for (const Message& ready : ready_) {
    const bool leaves = leaving_.contains(ready.from);
    if (!ready.has_state) {
      if (!leaves) resume.newcomers.push_back(ready.from);
      // It was to take part in a step, and has not: others may need what it had not given.
      const auto waiting = awaits_state_.find(ready.from);
      if (waiting != awaits_state_.end()) least = std::min(least, Progress{waiting->second});
      continue;
    }
    Progress progress = ready.progress;
    // Sums from before a redo are void: shared memory may hold half of the new ones.
    const bool is_void = progress.phase == Phase::kReduced && progress.step == redone_.step &&
                         ready.reduced_in < redone_in_;
    if (is_void) progress.phase = Phase::kWorking;
    least = std::min(least, progress);  // of a leaver too: others may need what it had not given
    if (leaves) continue;
    if (resume.donor < 0 || ready.from < resume.donor) resume.donor = ready.from;
  }
  lost_state_ = resume.donor < 0 && !resume.members.empty();
  if (lost_state_) return {};
  resume.step = least.step;
  resume.redo = least.phase == Phase::kWorking;
  if (resume.redo) {
    redone_ = least;
    redone_in_ = view_;
  }
  awaits_state_.clear();
  for (const int id : resume.newcomers)
    awaits_state_[id] = resume.redo ? resume.step : resume.step + 1;
  std::vector<Action> actions;
  for (int id : resume.members) actions.push_back(send(id, resume));
  for (int id : std::exchange(leaving_, {})) actions.push_back(send(id, resume));
  return actions;
}

}  // namespace starling::commit
