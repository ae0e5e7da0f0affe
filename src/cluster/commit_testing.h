// A toy world for the commit protocol: members that compute a chain of numbers together, a network
// that delivers late, twice and in any order, and deaths at any moment. All of it is driven by a
// seeded choice of the next event, so a failing seed replays.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "cluster/commit.h"

namespace starling::commit {

struct ToyOptions {
  bool shared_state = false;
  // Members don't send word of what they have done, but meet: each says in shared memory that it is
  // there, which is seen at once and outlives it. Requires shared_state.
  bool meets = false;
  int members = 3;
  int64_t steps = 4;
  uint64_t seed = 0;
  int deaths = 0, joins = 0, leaves = 0;  // at random moments
  int pauses = 0;                         // members that hear nothing for a while
  // Some members and the rest, with the coordinator, hear nothing of each other for a while; then
  // perhaps one of them is killed for it.
  int partitions = 0;
  // Besides, kills this member after this event.
  std::optional<int> kill_after;
  int victim = 0;
};

struct ToyOutcome {
  bool done = false;                // all that live reached the last step
  bool lost_state = false;          // nobody was left
  std::string wrong;                // what was violated, or empty
  std::vector<std::string> events;  // "apply block/reduced", … : what happened, at which phase
  std::string killed_after;         // the event before the death of kill_after
};

class ToyWorld {
 public:
  explicit ToyWorld(const ToyOptions& options);
  ToyOutcome run();

 private:
  static constexpr int kShards = 4, kBlocks = 3;

  // What travels: a message of the protocol, a shard's gradient, or the state.
  struct Packet {
    int from, to;
    enum class Kind { kProtocol, kGradient, kState } kind = Kind::kProtocol;
    Message message;
    int64_t view = 0, step = 0;
    int shard = 0;
    uint64_t value = 0;
    int64_t held_until = 0;
  };

  // What a member still has to do, one small piece at a time.
  struct Task {
    enum class Kind { kGradientBegins, kGradientEnds, kBlockBegins, kBlockEnds, kApplied } kind;
    int64_t view = 0, step = 0;
    int index = 0;  // of a shard or block
    bool finite = true;
    std::vector<int> members;
  };

  struct Worker {
    Member protocol;
    bool alive = true, retired = false, noticed = false;
    std::vector<uint64_t> blocks;  // of its own, when state is not shared
    int64_t heard_view = 0, heard_step = 0;
    std::map<int, uint64_t> heard;  // gradients by shard, of that view and step
    uint64_t sum = 0;               // of the step that it has reduced
    std::vector<Task> tasks;
    int64_t paused_until = 0;
    std::vector<int> members;  // of its view
    int64_t prepared = 0;      // the latest view that it was asked to prepare
  };

  struct SharedBlock {
    uint64_t value, before = 0;
    int64_t version = 0;  // updates it has seen
    bool in_progress = false;
  };

  static uint64_t mix(uint64_t a, uint64_t b);
  static uint64_t gradient(uint64_t state, int64_t step, int shard);
  static bool is_finite(int64_t step) { return step % 5 != 2; }
  static uint64_t updated(uint64_t block, uint64_t sum, int64_t step);
  static uint64_t digest(const std::vector<uint64_t>& blocks);

  size_t choose(size_t count) {
    return std::uniform_int_distribution<size_t>(0, count - 1)(random_);
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  void fail(const std::string& what);
  std::vector<uint64_t> state_of(const Worker& worker) const;
  bool finished() const;

  bool happen();  // one event; false when there is none
  bool maybe_disturb();
  bool maybe_part(const std::vector<int>& alive);
  bool is_across(const Packet& packet) const {
    return now_ < parted_until_ && parted_.contains(packet.from) != parted_.contains(packet.to);
  }
  void deliver(size_t index);
  void run_task(int id);
  void kill(int id);
  void obey(int id, const std::vector<Action>& actions);
  void obey_one(int id, const Action& action);
  void begin_work(int id, const Action& action);
  bool has_met(const Worker& worker, Message::Kind kind) const;
  bool can_look(const Worker& worker) const;
  void look(int id);
  void prepare_where_they_meet(int id, const Message& message);
  void hear(int id, const Packet& packet);
  void reduce_if_all_heard(int id);
  void begin_block(Worker& worker, const Task& task);
  void end_block(int id, Worker& worker, const Task& task);
  void check_start(int id, int64_t step);
  void send_all(const std::vector<Action>& actions);
  void note(const std::string& what, int id);

  const ToyOptions options_;
  std::mt19937_64 random_;
  Coordinator coordinator_;
  std::map<int, Worker> workers_;
  std::vector<Packet> network_;
  std::vector<SharedBlock> shared_;
  std::vector<std::optional<uint64_t>> shared_gradients_;  // nothing: half written
  std::vector<std::vector<uint64_t>> expected_;            // blocks before each step
  // Who has said so: kReduced or kApplied, in a view, of a step.
  std::map<std::tuple<Message::Kind, int64_t, int64_t>, std::set<int>> met_;
  int deaths_, joins_, leaves_, pauses_, partitions_, next_id_;
  std::set<int> parted_;  // from the rest
  int64_t parted_until_ = 0;
  int64_t now_ = 0;
  ToyOutcome outcome_;
};

}  // namespace starling::commit
