// SimCore: the inside of a SimWorld: the virtual clock, the queue of events, the messages on their
// way, who is dead or frozen, and the one source of random numbers. SimFabric calls it for what a
// rank does; SimWorld's runs take events from it. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "fabric/sim/sim.h"
#include "fabric/sim/sim_fabric.h"

namespace starling {

class SimCore {
 public:
  using Index = TransferTable::Index;

  // A message on its way, or waiting at its receiver for a receive that takes it.
  struct Message {
    int from = 0, to = 0;
    Tag tag = 0;
    uint64_t view = 0;
    std::unique_ptr<std::byte[]> bytes;
    size_t length = 0;
    bool rendezvous = false;  // its send is done when it is taken
    bool revoked = false;
    bool settled = false;               // the end of its send is known and scheduled
    Index send = TransferTable::kNone;  // the send that is told; none once it was cancelled
    int uses = 0;                       // deliveries to come, and copies that wait
  };

  struct Event {
    enum class Kind : uint8_t { kDeliver, kSendDone, kWake, kGone, kFault, kThaw };
    Instant at{};
    uint64_t order = 0;
    Kind kind = Kind::kWake;
    int rank = 0;
    int peer = 0;        // of kGone
    uint64_t value = 0;  // message, fault, or which of the rank's wake-ups this is
  };

  struct Rank {
    std::unique_ptr<SimFabric> fabric;
    bool dead = false;
    bool done = false;
    bool left = false;  // its thread has ended
    Instant frozen_until{};
    bool runnable = false;  // something changed for it
    Instant wake_at = Instant::max();
    uint64_t wake_number = 0;
    uint64_t operations = 0;
  };

  explicit SimCore(SimOptions options);

  // For fabrics.
  void count_operation(int rank);
  uint64_t post_message(int from, int to, Tag tag, uint64_t view, Index send,
                        std::span<const std::byte> bytes);
  void forget_send(uint64_t message);
  bool fetch(uint64_t message, std::span<std::byte> target);
  void discard(uint64_t message);
  void announce_end(int rank);
  void wake_by(int rank, Instant deadline);
  void make_runnable(int rank) { ranks[static_cast<size_t>(rank)].runnable = true; }

  // For runs. Takes the next event and does it; false when there is none before the end. Ranks that
  // have to run then are `runnable`.
  bool step();
  bool can_run(const Rank& rank) const {
    return !rank.dead && !rank.done && rank.frozen_until <= now;
  }
  bool has_events() const { return !queue_.empty(); }
  void kill(int rank);
  void freeze(int rank, std::chrono::nanoseconds lasts);

  uint64_t random();
  // Uniform in [least, most].
  std::chrono::nanoseconds random_between(std::chrono::nanoseconds least,
                                          std::chrono::nanoseconds most);
  bool chance(double probability);
  void trace(uint64_t a, uint64_t b = 0, uint64_t c = 0);

  const SimOptions options;
  std::vector<Rank> ranks;
  Instant now{};
  uint64_t trace_hash = 0;
  // How a rank waits: a machine's progress returns at once, blocking code's gives way to the
  // others.
  std::function<void(int rank)> give_way;

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return std::tie(a.at, a.order) > std::tie(b.at, b.order);
    }
  };

  SimLink link(int from, int to) const;
  void schedule(Instant at, Event event);
  size_t pair(int from, int to) const {
    return static_cast<size_t>(from) * ranks.size() + static_cast<size_t>(to);
  }
  bool cut_off(int from, int to, Instant sent, Instant& arrives) const;
  void send_copy(uint64_t id, const SimLink& link, bool in_order);
  void release(uint64_t id);
  void settle(uint64_t id, Instant at);
  void deliver(uint64_t id);
  void send_done(uint64_t id);
  void hit(const SimFault& fault);

  uint64_t random_state_;
  uint64_t events_ = 0;
  uint64_t next_message_ = 1;
  std::priority_queue<Event, std::vector<Event>, Later> queue_;
  std::unordered_map<uint64_t, Message> messages_;
  std::map<std::tuple<int, int, Tag>, Instant> last_arrival_;
  std::vector<Instant> latest_arrival_;  // by rank and peer
  std::vector<Instant> heard_until_;  // of a dead rank, by rank and peer: later messages are lost
};

}  // namespace starling
