#include "fabric/sim/sim_fabric.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "fabric/sim/sim_core.h"

namespace starling {

SimFabric::SimFabric(SimCore& core, int rank, int world)
    : FabricBase(rank, world, SIZE_MAX, this), core_(core), sending_(static_cast<size_t>(world)) {}

// The world goes with its ranks: there is nobody left to be told.
SimFabric::~SimFabric() = default;

Instant SimFabric::now() const { return core_.now; }

void SimFabric::before_start() { core_.count_operation(rank()); }

void SimFabric::begin_send(Index slot) {
  const TransferTable::Slot& send = table()[slot];
  const int peer = send.transfer.peer;
  sending_[static_cast<size_t>(peer)].push(table(), slot);
  table()[slot].handle = core_.post_message(rank(), peer, send.transfer.tag, send.view, slot,
                                            {send.source, send.transfer.of_bytes});
}

void SimFabric::cancel_send(Index slot) {
  sending_[static_cast<size_t>(table()[slot].transfer.peer)].remove(table(), slot);
  core_.forget_send(table()[slot].handle);
  table().release(slot);
}

void SimFabric::fail_sends(int peer, FailureKind failure) {
  SlotList& list = sending_[static_cast<size_t>(peer)];
  while (!list.empty()) {
    const Index slot = list.pop(table());
    core_.forget_send(table()[slot].handle);
    table().fail(slot, failure);
  }
}

void SimFabric::end_links() { core_.announce_end(rank()); }

void SimFabric::send_done(Index slot, std::span<const std::byte> sent) {
  const TransferTable::Slot& send = table()[slot];
  const int peer = send.transfer.peer;
  if (!sent.empty() && std::memcmp(send.source, sent.data(), sent.size()) != 0) {
    throw std::logic_error(fmt::format("send rank={} tag={}: its memory changed before it was done",
                                       rank(), send.transfer.tag));
  }
  sending_[static_cast<size_t>(peer)].remove(table(), slot);
  finish_send(slot);
}

void SimFabric::deliver(int from, Tag tag, uint64_t view, std::span<const std::byte> bytes) {
  Incoming* message = mailbox().begin(from, tag, view, bytes.size());
  if (message->target && !bytes.empty()) std::memcpy(message->place(), bytes.data(), bytes.size());
  mailbox().advance(message, bytes.size());
}

void SimFabric::deliver_in_place(int from, Tag tag, uint64_t view, size_t length,
                                 uint64_t message) {
  mailbox().arrive_in_place(from, tag, view, length, message);
}

bool SimFabric::fetch(int, uint64_t handle, std::span<std::byte> target) {
  return core_.fetch(handle, target);
}

void SimFabric::discard(int, uint64_t handle) { core_.discard(handle); }

bool SimFabric::progress(Instant deadline) {
  if (core_.ranks[static_cast<size_t>(rank())].dead) throw SimDeath{};
  const bool changed = take_changed();
  if (!core_.give_way) {
    // A machine: the run calls it again.
    if (changed || deadline > core_.now) core_.wake_by(rank(), changed ? core_.now : deadline);
    return changed;
  }
  if (changed) return true;
  // Looking without waiting takes a little time too, or a loop that looks would never end.
  constexpr std::chrono::microseconds kLook(1);
  core_.wake_by(rank(), std::max(deadline, core_.now + kLook));
  core_.give_way(rank());
  return take_changed();
}

void SimFabric::wake() {
  note_change();
  core_.make_runnable(rank());
}

}  // namespace starling
