// The toy world of commit_testing.h.
#include <algorithm>

#include "cluster/commit_testing.h"

namespace starling::commit {

uint64_t ToyWorld::mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u ^ (b + 0x7f4a7c15u);
  x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 29);
}

uint64_t ToyWorld::gradient(uint64_t state, int64_t step, int shard) {
  return mix(mix(state, static_cast<uint64_t>(step)), static_cast<uint64_t>(shard));
}

uint64_t ToyWorld::updated(uint64_t block, uint64_t sum, int64_t step) {
  return is_finite(step) ? mix(block, sum) : block;
}

uint64_t ToyWorld::digest(const std::vector<uint64_t>& blocks) {
  uint64_t result = 1;
  for (uint64_t block : blocks) result = mix(result, block);
  return result;
}

ToyWorld::ToyWorld(const ToyOptions& options)
    : options_(options),
      random_(options.seed),
      shared_gradients_(kShards, uint64_t{0}),
      deaths_(options.deaths),
      joins_(options.joins),
      leaves_(options.leaves),
      pauses_(options.pauses),
      partitions_(options.partitions),
      next_id_(options.members) {
  std::vector<uint64_t> blocks;
  for (int b = 0; b < kBlocks; ++b) blocks.push_back(mix(77, static_cast<uint64_t>(b)));
  for (uint64_t block : blocks) shared_.push_back({.value = block});
  std::vector<int> ids;
  for (int id = 0; id < options.members; ++id) {
    ids.push_back(id);
    workers_.emplace(id,
                     Worker{.protocol = Member({.id = id, .shared_state = options.shared_state}),
                            .blocks = blocks});
  }
  // What one worker alone would compute.
  for (int64_t step = 0; step <= options.steps; ++step) {
    expected_.push_back(blocks);
    uint64_t sum = 0;
    for (int shard = 0; shard < kShards; ++shard) {
      sum = mix(sum, gradient(digest(blocks), step, shard));
    }
    for (uint64_t& block : blocks) block = updated(block, sum, step);
  }
  send_all(coordinator_.joined(ids));
}

void ToyWorld::fail(const std::string& what) {
  if (outcome_.wrong.empty()) outcome_.wrong = what;
}

void ToyWorld::note(const std::string& what, int id) {
  static constexpr const char* kPhases[] = {"working", "reduced", "applied"};
  const Member& member = workers_.at(id).protocol;
  outcome_.events.push_back(what + "/" + kPhases[static_cast<int>(member.progress().phase)]);
}

std::vector<uint64_t> ToyWorld::state_of(const Worker& worker) const {
  if (!options_.shared_state) return worker.blocks;
  std::vector<uint64_t> blocks;
  for (const SharedBlock& block : shared_) blocks.push_back(block.value);
  return blocks;
}

bool ToyWorld::finished() const {
  return std::all_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return !worker.alive || worker.retired || worker.protocol.progress().step >= options_.steps;
  });
}

ToyOutcome ToyWorld::run() {
  constexpr int kMostEvents = 20000;
  try {
    for (int event = 0; event < kMostEvents && outcome_.wrong.empty(); ++event) {
      if (finished() || coordinator_.lost_state()) break;
      if (!happen()) fail("nothing more can happen, and the steps are not done");
      const auto victim = workers_.find(options_.victim);
      if (options_.kill_after == event && victim != workers_.end() && victim->second.alive) {
        outcome_.killed_after = outcome_.events.empty() ? "start" : outcome_.events.back();
        kill(options_.victim);
      }
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
  outcome_.lost_state = coordinator_.lost_state();
  const bool anyone = std::any_of(workers_.begin(), workers_.end(), [](const auto& entry) {
    return entry.second.alive && !entry.second.retired;
  });
  outcome_.done = finished() && anyone;
  if (outcome_.wrong.empty() && anyone && !outcome_.done && !outcome_.lost_state) {
    fail("the steps are not done in time");
  }
  return outcome_;
}

// One of all that may happen now. Messages wait for each other in no order.
bool ToyWorld::happen() {
  ++now_;
  if (maybe_disturb()) return true;
  struct Choice {
    enum class Kind { kDeliver, kTask, kLook, kNotice } kind;
    size_t index;
  };
  std::vector<Choice> choices;
  bool waits = false;
  for (size_t i = 0; i < network_.size(); ++i) {
    // State is taken by those who wait for it, not before.
    const Packet& packet = network_[i];
    const bool early =
        packet.kind == Packet::Kind::kState && packet.view > workers_.at(packet.to).protocol.view();
    const bool held = packet.held_until > now_ || early || is_across(packet);
    waits |= held;
    if (!held) choices.push_back({Choice::Kind::kDeliver, i});
  }
  for (auto& [id, worker] : workers_) {
    const auto index = static_cast<size_t>(id);
    if (worker.alive && !worker.tasks.empty()) {
      if (worker.paused_until > now_) {
        waits = true;
      } else {
        choices.push_back({Choice::Kind::kTask, index});
      }
    }
    if (can_look(worker)) {
      if (worker.paused_until > now_) {
        waits = true;
      } else {
        choices.push_back({Choice::Kind::kLook, index});
      }
    }
    if (!worker.alive && !worker.noticed) choices.push_back({Choice::Kind::kNotice, index});
  }
  if (choices.empty()) return waits;
  const Choice choice = choices[choose(choices.size())];
  switch (choice.kind) {
    case Choice::Kind::kDeliver:
      deliver(choice.index);
      break;
    case Choice::Kind::kTask:
      run_task(static_cast<int>(choice.index));
      break;
    case Choice::Kind::kLook:
      look(static_cast<int>(choice.index));
      break;
    case Choice::Kind::kNotice:
      workers_.at(static_cast<int>(choice.index)).noticed = true;
      send_all(coordinator_.died(static_cast<int>(choice.index)));
      break;
  }
  return true;
}

bool ToyWorld::maybe_disturb() {
  std::vector<int> alive;
  for (const auto& [id, worker] : workers_) {
    if (worker.alive && !worker.retired) alive.push_back(id);
  }
  if (alive.empty()) return false;
  const int someone = alive[choose(alive.size())];
  if (deaths_ > 0 && chance(0.02)) {
    --deaths_;
    kill(someone);
    return true;
  }
  if (joins_ > 0 && chance(0.02)) {
    --joins_;
    const int id = next_id_++;
    workers_.emplace(
        id, Worker{.protocol = Member(
                       {.id = id, .shared_state = options_.shared_state, .has_state = false}),
                   .blocks = std::vector<uint64_t>(kBlocks, 0)});
    send_all(coordinator_.joined({id}));
    return true;
  }
  if (leaves_ > 0 && alive.size() > 1 && chance(0.02)) {
    --leaves_;
    send_all(coordinator_.left(someone));
    note("asked to leave", someone);
    return true;
  }
  if (pauses_ > 0 && chance(0.02)) {
    --pauses_;
    workers_.at(someone).paused_until = now_ + 60;
    for (Packet& packet : network_) {
      if (packet.to == someone || packet.from == someone) packet.held_until = now_ + 60;
    }
    return true;
  }
  return maybe_part(alive);
}

bool ToyWorld::maybe_part(const std::vector<int>& alive) {
  if (now_ < parted_until_) return false;
  const std::set<int> before = std::exchange(parted_, {});
  for (const int id : alive) {
    if (!before.contains(id) || alive.size() < 2 || !chance(0.5)) continue;
    kill(id);
    return true;
  }
  if (partitions_ == 0 || alive.size() < 2 || !chance(0.02)) return false;
  --partitions_;
  parted_until_ = now_ + 80;
  for (const int id : alive) {
    if (chance(0.5)) parted_.insert(id);
  }
  return true;
}

void ToyWorld::kill(int id) {
  Worker& worker = workers_.at(id);
  worker.alive = false;
  worker.tasks.clear();
}

void ToyWorld::send_all(const std::vector<Action>& actions) {
  for (const Action& action : actions) {
    network_.push_back({.from = -1, .to = action.to, .message = action.message});
  }
}

void ToyWorld::deliver(size_t index) {
  const Packet packet = network_[index];
  // Now and then it comes again, later.
  if (!chance(0.05)) {
    network_[index] = network_.back();
    network_.pop_back();
  }
  if (packet.to == -1) {
    send_all(coordinator_.receive(packet.message));
    return;
  }
  Worker& worker = workers_.at(packet.to);
  if (!worker.alive || worker.retired) return;
  switch (packet.kind) {
    case Packet::Kind::kGradient:
      hear(packet.to, packet);
      return;
    case Packet::Kind::kState: {
      const std::vector<Action> actions = worker.protocol.received_state(packet.view, packet.step);
      if (actions.empty()) return;  // nobody waits for it any more
      if (!options_.shared_state) worker.blocks = expected_.at(static_cast<size_t>(packet.step));
      obey(packet.to, actions);
      note("state received", packet.to);
      return;
    }
    case Packet::Kind::kProtocol:
      break;
  }
  static constexpr const char* kKinds[] = {"peer reduced", "peer applied", "prepare", "ready",
                                           "resume"};
  std::string what = kKinds[static_cast<int>(packet.message.kind)];
  if (packet.message.kind == Message::Kind::kResume) {
    what += packet.message.redo ? " to redo" : " to complete";
  }
  if (options_.meets && packet.message.kind == Message::Kind::kPrepare)
    prepare_where_they_meet(packet.to, packet.message);
  obey(packet.to, worker.protocol.receive(packet.message));
  note(worker.retired ? "retired" : what, packet.to);
}

bool ToyWorld::has_met(const Worker& worker, Message::Kind kind) const {
  const auto found = met_.find({kind, worker.protocol.view(), worker.protocol.progress().step});
  return found != met_.end() && std::includes(found->second.begin(), found->second.end(),
                                              worker.members.begin(), worker.members.end());
}

bool ToyWorld::can_look(const Worker& worker) const {
  if (!options_.meets || !worker.alive || worker.retired || !worker.tasks.empty()) return false;
  const Phase phase = worker.protocol.progress().phase;
  return (phase == Phase::kReduced && has_met(worker, Message::Kind::kReduced)) ||
         (phase == Phase::kApplied && has_met(worker, Message::Kind::kApplied));
}

void ToyWorld::look(int id) {
  Member& member = workers_.at(id).protocol;
  const Progress at = member.progress();
  const bool reduced = at.phase == Phase::kReduced;
  obey(id, member.heard_all(reduced ? Message::Kind::kReduced : Message::Kind::kApplied, at.step));
  note(reduced ? "all have reduced" : "all have applied", id);
}

// An update may be left between two blocks; sums that lack a part of a lost member are none.
void ToyWorld::prepare_where_they_meet(int id, const Message& message) {
  Worker& worker = workers_.at(id);
  Member& member = worker.protocol;
  if (message.view <= worker.prepared) return;
  worker.prepared = message.view;
  const bool applies =
      !worker.tasks.empty() && member.progress().phase == Phase::kReduced && chance(0.5);
  if (applies) {
    if (worker.tasks.front().kind == Task::Kind::kBlockEnds) run_task(id);
    worker.tasks.clear();
    member.suspend();
  }
  const Progress at = member.progress();
  const std::set<int>& there = met_[{Message::Kind::kReduced, member.view(), at.step}];
  const std::set<int> asked(message.members.begin(), message.members.end());
  // Who is ahead of the others in a new view completes what was reduced in an earlier one.
  const bool reduced_here = there.contains(id);
  for (const int other : worker.members) {
    if (reduced_here && !asked.contains(other) && !there.contains(other)) member.withdraw(at.step);
  }
}

void ToyWorld::obey(int id, const std::vector<Action>& actions) {
  for (const Action& action : actions) obey_one(id, action);
}

void ToyWorld::obey_one(int id, const Action& action) {
  Worker& worker = workers_.at(id);
  switch (action.kind) {
    case Action::Kind::kSend:
      if (const Message& said = action.message;
          options_.meets &&
          (said.kind == Message::Kind::kReduced || said.kind == Message::Kind::kApplied)) {
        met_[{said.kind, said.view, said.step}].insert(id);
        break;
      }
      network_.push_back({.from = id, .to = action.to, .message = action.message});
      break;
    case Action::Kind::kStop:
      worker.tasks.clear();
      break;
    case Action::Kind::kRetire:
      worker.retired = true;
      worker.tasks.clear();
      break;
    case Action::Kind::kSendState:
      check_start(id, action.step);
      network_.push_back({.from = id,
                          .to = action.to,
                          .kind = Packet::Kind::kState,
                          .view = action.view,
                          .step = action.step});
      break;
    case Action::Kind::kAwaitState:
      break;
    case Action::Kind::kWork:
      check_start(id, action.step);
      if (action.step < options_.steps) begin_work(id, action);
      break;
    case Action::Kind::kApply: {
      worker.members = action.members;
      const auto count = static_cast<int>(action.members.size());
      const auto at = static_cast<int>(std::find(action.members.begin(), action.members.end(), id) -
                                       action.members.begin());
      if (action.finite != is_finite(action.step)) fail("a step commits with another verdict");
      for (int block = 0; block < kBlocks; ++block) {
        if (options_.shared_state && block % count != at) continue;
        const Task begin{.kind = Task::Kind::kBlockBegins, .step = action.step, .index = block};
        worker.tasks.push_back(begin);
        worker.tasks.push_back(begin);
        worker.tasks.back().kind = Task::Kind::kBlockEnds;
      }
      worker.tasks.push_back({.kind = Task::Kind::kApplied, .step = action.step});
      break;
    }
  }
}

// A step begins with the bits that one worker alone would have.
void ToyWorld::check_start(int id, int64_t step) {
  if (state_of(workers_.at(id)) != expected_.at(static_cast<size_t>(step))) {
    fail("worker " + std::to_string(id) + " begins step " + std::to_string(step) +
         " with other bits");
  }
}

void ToyWorld::begin_work(int id, const Action& action) {
  Worker& worker = workers_.at(id);
  if (!worker.tasks.empty()) fail("a member works on two steps");
  worker.members = action.members;
  const auto count = static_cast<int>(action.members.size());
  const auto at = static_cast<int>(std::find(action.members.begin(), action.members.end(), id) -
                                   action.members.begin());
  for (int shard = at * kShards / count; shard < (at + 1) * kShards / count; ++shard) {
    const Task begin{.kind = Task::Kind::kGradientBegins,
                     .view = action.view,
                     .step = action.step,
                     .index = shard,
                     .members = action.members};
    worker.tasks.push_back(begin);
    worker.tasks.push_back(begin);
    worker.tasks.back().kind = Task::Kind::kGradientEnds;
  }
  if (options_.meets && worker.tasks.empty()) {  // it has no shard
    obey(id, worker.protocol.reduced(action.step, is_finite(action.step)));
    return;
  }
  reduce_if_all_heard(id);  // those of the others may have come before
}

void ToyWorld::run_task(int id) {
  Worker& worker = workers_.at(id);
  const Task task = worker.tasks.front();
  worker.tasks.erase(worker.tasks.begin());
  const auto shard = static_cast<size_t>(task.index);
  switch (task.kind) {
    case Task::Kind::kGradientBegins:
      if (options_.shared_state) shared_gradients_[shard].reset();
      note("gradient begins", id);
      break;
    case Task::Kind::kGradientEnds: {
      const uint64_t value = gradient(digest(state_of(worker)), task.step, task.index);
      if (options_.shared_state) shared_gradients_[shard] = value;
      if (options_.meets) {
        note("gradient ends", id);
        const bool last = worker.tasks.empty();
        if (last) obey(id, worker.protocol.reduced(task.step, is_finite(task.step)));
        break;
      }
      for (int member : task.members) {
        network_.push_back({.from = id,
                            .to = member,
                            .kind = Packet::Kind::kGradient,
                            .view = task.view,
                            .step = task.step,
                            .shard = task.index,
                            .value = value});
      }
      note("gradient ends", id);
      break;
    }
    case Task::Kind::kBlockBegins:
      begin_block(worker, task);
      note("block begins", id);
      break;
    case Task::Kind::kBlockEnds:
      end_block(id, worker, task);
      note("block ends", id);
      break;
    case Task::Kind::kApplied:
      obey(id, worker.protocol.applied(task.step));
      note("applied", id);
      break;
  }
}

// Gradients of a step may come before its resume: they are kept by view and step.
void ToyWorld::hear(int id, const Packet& packet) {
  Worker& worker = workers_.at(id);
  const auto now = std::pair(packet.view, packet.step);
  const auto heard = std::pair(worker.heard_view, worker.heard_step);
  if (now < heard) return;
  if (now > heard) {
    worker.heard.clear();
    std::tie(worker.heard_view, worker.heard_step) = now;
  }
  worker.heard[packet.shard] = packet.value;
  reduce_if_all_heard(id);
}

void ToyWorld::reduce_if_all_heard(int id) {
  Worker& worker = workers_.at(id);
  const Progress at = worker.protocol.progress();
  const bool current = worker.heard_view == worker.protocol.view() && worker.heard_step == at.step;
  if (!current || at.phase != Phase::kWorking || worker.heard.size() < kShards) return;
  worker.sum = 0;
  for (const auto& [shard, value] : worker.heard) worker.sum = mix(worker.sum, value);
  obey(id, worker.protocol.reduced(at.step, is_finite(at.step)));
  note("reduced", id);
}

void ToyWorld::begin_block(Worker& worker, const Task& task) {
  if (!options_.shared_state) return;
  SharedBlock& block = shared_[static_cast<size_t>(task.index)];
  if (block.version > task.step) return;  // its owner did it before it was lost
  if (block.in_progress) block.value = block.before;
  block.before = block.value;
  block.in_progress = true;
  block.value = mix(block.value, 0xdead);  // half written
  static_cast<void>(worker);
}

void ToyWorld::end_block(int id, Worker& worker, const Task& task) {
  if (options_.shared_state && shared_[static_cast<size_t>(task.index)].version > task.step) return;
  uint64_t sum = options_.shared_state ? 0 : worker.sum;
  for (const std::optional<uint64_t>& value : shared_gradients_) {
    if (!options_.shared_state) break;
    if (!value) return fail("worker " + std::to_string(id) + " applies a half-written gradient");
    sum = mix(sum, *value);
  }
  if (!options_.shared_state) {
    uint64_t& block = worker.blocks[static_cast<size_t>(task.index)];
    block = updated(block, sum, task.step);
    return;
  }
  SharedBlock& block = shared_[static_cast<size_t>(task.index)];
  block.value = updated(block.before, sum, task.step);
  block.version = task.step + 1;
  block.in_progress = false;
}

}  // namespace starling::commit
