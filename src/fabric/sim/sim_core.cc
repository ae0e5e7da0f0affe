#include "fabric/sim/sim_core.h"

#include <algorithm>
#include <cstring>

#include "base/random.h"

namespace starling {

using std::chrono::nanoseconds;

SimCore::SimCore(SimOptions given)
    : options(std::move(given)), ranks(static_cast<size_t>(options.world)) {
  const size_t world = ranks.size();
  random_state_ = mix64(options.seed ^ hash_name("sim"));
  heard_until_.assign(world * world, Instant::max());
  latest_arrival_.assign(world * world, Instant{});
  for (int rank = 0; rank < options.world; ++rank) {
    ranks[static_cast<size_t>(rank)].fabric =
        std::make_unique<SimFabric>(*this, rank, options.world);
  }
  for (size_t i = 0; i < options.faults.size(); ++i) {
    const SimFault& fault = options.faults[i];
    if (fault.at == Instant::max()) continue;
    schedule(fault.at, {.kind = Event::Kind::kFault, .rank = fault.rank, .value = i});
  }
}

uint64_t SimCore::random() {
  random_state_ += 0x9E3779B97F4A7C15;
  return mix64(random_state_);
}

nanoseconds SimCore::random_between(nanoseconds least, nanoseconds most) {
  if (most <= least) return least;
  const uint64_t range = static_cast<uint64_t>((most - least).count()) + 1;
  return least + nanoseconds(static_cast<int64_t>(random() % range));
}

bool SimCore::chance(double probability) {
  // No draw for a chance that is none, so that options which are off change nothing.
  return probability > 0 && static_cast<double>(random() >> 11) * 0x1p-53 < probability;
}

void SimCore::trace(uint64_t a, uint64_t b, uint64_t c) {
  trace_hash = mix64(trace_hash ^ a);
  trace_hash = mix64(trace_hash ^ b);
  trace_hash = mix64(trace_hash ^ c);
}

SimLink SimCore::link(int from, int to) const {
  if (from == to) return {.delay_least = nanoseconds(100), .delay_most = nanoseconds(100)};
  return options.link_between ? options.link_between(from, to) : options.link;
}

void SimCore::schedule(Instant at, Event event) {
  event.at = at;
  event.order = ++events_;
  queue_.push(event);
}

void SimCore::count_operation(int rank) {
  Rank& self = ranks[static_cast<size_t>(rank)];
  if (self.dead) throw SimDeath{};
  ++self.operations;
  trace(static_cast<uint64_t>(rank), self.operations);
  for (const SimFault& fault : options.faults) {
    if (fault.rank != rank || fault.operation == 0 || fault.operation != self.operations) continue;
    hit(fault);
    if (self.dead) throw SimDeath{};
    if (give_way) give_way(rank);
  }
}

void SimCore::hit(const SimFault& fault) {
  fault.freeze ? freeze(fault.rank, fault.lasts) : kill(fault.rank);
}

// Whether a partition takes the message; one that only delays moves its arrival behind the end.
bool SimCore::cut_off(int from, int to, Instant sent, Instant& arrives) const {
  for (const SimPartition& partition : options.partitions) {
    const bool crosses = ((partition.group >> from) & 1) != ((partition.group >> to) & 1);
    if (!crosses || arrives < partition.from || sent >= partition.until) continue;
    if (partition.lose) return true;
    arrives = partition.until + (arrives - sent);
  }
  return false;
}

uint64_t SimCore::post_message(int from, int to, Tag tag, uint64_t view, Index send,
                               std::span<const std::byte> bytes) {
  const uint64_t id = next_message_++;
  Message& message = messages_[id];
  message.from = from;
  message.to = to;
  message.tag = tag;
  message.view = view;
  message.length = bytes.size();
  message.send = send;
  message.rendezvous = bytes.size() > options.eager_bytes;
  message.bytes = std::make_unique_for_overwrite<std::byte[]>(bytes.size());
  if (!bytes.empty()) std::memcpy(message.bytes.get(), bytes.data(), bytes.size());
  trace(id, tag, bytes.size());

  const SimLink link = this->link(from, to);
  message.uses = 1;  // until its send is done
  const bool dropped = chance(link.drop);
  if (!dropped) send_copy(id, link, !link.reorder);
  if (!dropped && chance(link.duplicate)) send_copy(id, link, false);
  if (!message.rendezvous || message.uses == 1) {
    settle(id, now + random_between(nanoseconds(100), link.delay_least));
  }
  return id;
}

void SimCore::send_copy(uint64_t id, const SimLink& link, bool in_order) {
  Message& message = messages_[id];
  nanoseconds delay = random_between(link.delay_least, link.delay_most);
  if (link.bytes_per_second > 0) {
    delay += nanoseconds(
        static_cast<int64_t>(static_cast<double>(message.length) / link.bytes_per_second * 1e9));
  }
  Instant arrives = now + delay;
  if (cut_off(message.from, message.to, now, arrives)) return;
  if (in_order) {
    Instant& last = last_arrival_[{message.from, message.to, message.tag}];
    arrives = last = std::max(arrives, last);
  }
  Instant& latest = latest_arrival_[pair(message.from, message.to)];
  latest = std::max(latest, arrives);
  ++message.uses;
  schedule(arrives, {.kind = Event::Kind::kDeliver, .rank = message.to, .value = id});
}

void SimCore::release(uint64_t id) {
  if (--messages_[id].uses == 0) messages_.erase(id);
}

void SimCore::settle(uint64_t id, Instant at) {
  Message& message = messages_[id];
  if (std::exchange(message.settled, true)) return;
  schedule(at, {.kind = Event::Kind::kSendDone, .rank = message.from, .value = id});
}

// The send was cancelled or has failed. What is on its way arrives; what waits for its receiver may
// have been taken back in time or not: both happen.
void SimCore::forget_send(uint64_t id) {
  Message& message = messages_[id];
  message.send = TransferTable::kNone;
  if (message.settled) return;
  message.revoked = chance(0.5);
  settle(id, now);
}

bool SimCore::fetch(uint64_t id, std::span<std::byte> target) {
  const Message& message = messages_[id];
  const bool there = !message.revoked;
  if (there) std::memcpy(target.data(), message.bytes.get(), message.length);
  discard(id);
  return there;
}

void SimCore::discard(uint64_t id) {
  const Message& message = messages_[id];
  settle(id, now + link(message.to, message.from).delay_least);
  release(id);
}

void SimCore::send_done(uint64_t id) {
  Message& message = messages_[id];
  if (message.send != TransferTable::kNone) {
    const Index send = std::exchange(message.send, TransferTable::kNone);
    ranks[static_cast<size_t>(message.from)].fabric->send_done(
        send, {message.bytes.get(), message.length});
  }
  release(id);
}

void SimCore::deliver(uint64_t id) {
  const Message& message = messages_[id];
  Rank& receiver = ranks[static_cast<size_t>(message.to)];
  // A rank that ended takes nothing: a send that waits for it goes on waiting.
  if (receiver.fabric->has_ended() || now > heard_until_[pair(message.from, message.to)])
    return release(id);
  if (message.rendezvous) {
    receiver.fabric->deliver_in_place(message.from, message.tag, message.view, message.length, id);
  } else {
    receiver.fabric->deliver(message.from, message.tag, message.view,
                             {message.bytes.get(), message.length});
    release(id);
  }
}

// The others will notice that the rank is no more. Of a dead rank's messages those on their way are
// lost from a random moment on; the notice comes after all that still arrives.
void SimCore::announce_end(int rank) {
  for (int peer = 0; peer < options.world; ++peer) {
    if (peer == rank) continue;
    const Instant latest = std::max(now, latest_arrival_[pair(rank, peer)]);
    Instant heard = latest;
    if (ranks[static_cast<size_t>(rank)].dead) {
      // As often as not, all of it still comes.
      heard = std::min(latest, now + random_between(nanoseconds(0), 2 * (latest - now)));
      heard_until_[pair(rank, peer)] = heard;
    }
    const nanoseconds notice = random_between(options.notice_least, options.notice_most);
    schedule(heard + notice, {.kind = Event::Kind::kGone, .rank = peer, .peer = rank});
  }
}

void SimCore::wake_by(int rank, Instant deadline) {
  Rank& self = ranks[static_cast<size_t>(rank)];
  if (deadline >= self.wake_at) return;
  self.wake_at = deadline;
  schedule(std::max(deadline, now),
           {.kind = Event::Kind::kWake, .rank = rank, .value = ++self.wake_number});
}

void SimCore::kill(int rank) {
  Rank& self = ranks[static_cast<size_t>(rank)];
  if (self.dead || self.done) return;
  self.dead = true;
  trace(hash_name("kill"), static_cast<uint64_t>(rank));
  self.fabric->close();
}

void SimCore::freeze(int rank, nanoseconds lasts) {
  Rank& self = ranks[static_cast<size_t>(rank)];
  self.frozen_until = std::max(self.frozen_until, now + lasts);
  trace(hash_name("freeze"), static_cast<uint64_t>(rank));
  schedule(self.frozen_until, {.kind = Event::Kind::kThaw, .rank = rank});
}

bool SimCore::step() {
  if (queue_.empty() || queue_.top().at > options.end) return false;
  const Event event = queue_.top();
  queue_.pop();
  now = std::max(now, event.at);
  Rank& self = ranks[static_cast<size_t>(event.rank)];
  trace(static_cast<uint64_t>(event.kind) << 32 | static_cast<uint32_t>(event.rank),
        static_cast<uint64_t>(now.time_since_epoch().count()), event.value);
  switch (event.kind) {
    case Event::Kind::kDeliver:
      deliver(event.value);
      break;
    case Event::Kind::kSendDone:
      send_done(event.value);
      break;
    case Event::Kind::kWake:
      if (event.value == self.wake_number) self.runnable = true;
      break;
    case Event::Kind::kGone:
      self.fabric->lose_peer(event.peer, ranks[static_cast<size_t>(event.peer)].dead
                                             ? "died"
                                             : "closed the connection");
      break;
    case Event::Kind::kFault:
      hit(options.faults[event.value]);
      break;
    case Event::Kind::kThaw:
      self.runnable = true;
      break;
  }
  if (self.fabric->take_changed()) {
    self.fabric->note_change();
    self.runnable = true;
  }
  return true;
}

}  // namespace starling
