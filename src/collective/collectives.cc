#include "collective/collectives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "collective/all_gather.h"
#include "collective/all_reduce_direct.h"
#include "collective/all_reduce_halving_doubling.h"
#include "collective/all_reduce_ring.h"
#include "collective/barrier.h"
#include "collective/broadcast.h"
#include "collective/echo.h"
#include "collective/gather.h"
#include "collective/reduce_scatter.h"
#include "collective/shift.h"
#include "starling/error.h"

namespace starling {
namespace {

// A tag is: channel (8 bits), operation (32), message (24).
constexpr uint64_t kOperations = uint64_t{1} << 32;
constexpr uint64_t kFarewell = kOperations - 1;  // no operation has this number

Tag tag_of(uint8_t channel, uint64_t operation) {
  return static_cast<Tag>(channel) << 56 | operation * kTagsPerOperation;
}

// What is said when giving up: kind, peer, reason.
constexpr size_t kReasonBytesMax = 400;
constexpr size_t kHeadBytes = 1 + sizeof(int32_t);
// How long they may take to leave: others may be slow to read, or gone.
constexpr std::chrono::milliseconds kFarewellMost{100};

std::vector<std::byte> encode(const Failure& failure) {
  const size_t length = std::min(failure.message.size(), kReasonBytesMax);
  std::vector<std::byte> bytes(kHeadBytes + length);
  const int32_t peer = failure.peer;
  bytes[0] = static_cast<std::byte>(failure.kind);
  std::memcpy(&bytes[1], &peer, sizeof(peer));
  std::memcpy(bytes.data() + kHeadBytes, failure.message.data(), length);
  return bytes;
}

std::optional<Failure> decode(std::span<const std::byte> bytes, int world) {
  if (bytes.size() < kHeadBytes) return std::nullopt;
  int32_t peer = 0;
  std::memcpy(&peer, &bytes[1], sizeof(peer));
  const uint8_t kind = static_cast<uint8_t>(bytes[0]);
  if (kind > static_cast<uint8_t>(FailureKind::kClosed) || peer < -1 || peer >= world) {
    return std::nullopt;
  }
  return Failure{static_cast<FailureKind>(kind), peer,
                 std::string(reinterpret_cast<const char*>(bytes.data()) + kHeadBytes,
                             bytes.size() - kHeadBytes)};
}

void require_placement(const Fabric& fabric, const Placement& placement) {
  if (placement.workers() != static_cast<size_t>(fabric.world())) {
    throw input_error(fmt::format("a placement for {} workers in a world of {}",
                                  placement.workers(), fabric.world()),
                      "place the shards on the workers of the world");
  }
}

}  // namespace

Collectives::Collectives(Fabric& fabric, std::shared_ptr<const Placement> placement,
                         const CollectiveOptions& options)
    : fabric_(fabric),
      placement_(std::move(placement)),
      options_(options),
      farewell_tag_(tag_of(options.channel, kFarewell)),
      heard_(kHeadBytes + kReasonBytesMax) {
  require_placement(fabric_, *placement_);
  if (options_.chunk_bytes < 4 || options_.chunk_bytes % 4 != 0 || options_.window == 0 ||
      options_.slice_unit == 0) {
    throw input_error("chunks must be multiples of 4 bytes, windows and slice units at least 1",
                      "leave chunk_bytes, window and slice_unit at their defaults");
  }
  if (world() > 1) farewell_ = fabric_.start_receive_up_to(kAnyPeer, farewell_tag_, heard_);
}

Collectives::~Collectives() {
  entries_.clear();
  fabric_.cancel(farewell_);
  for (const Ticket ticket : saying_) fabric_.cancel(ticket);
}

void Collectives::set_placement(std::shared_ptr<const Placement> placement) {
  require_placement(fabric_, *placement);
  placement_ = std::move(placement);
}

Channel Collectives::next_channel() {
  return {.fabric = &fabric_,
          .tag = tag_of(options_.channel, next_ % kFarewell),
          .chunk_bytes = options_.chunk_bytes,
          .window = options_.window};
}

Collectives::Entry Collectives::entry(std::span<const float* const> partials) const {
  const size_t needed = placement_->partials(static_cast<size_t>(rank())).size();
  if (partials.size() != needed) {
    throw input_error(fmt::format("rank {} has {} partial sums, its placement wants {}", rank(),
                                  partials.size(), needed),
                      "sum each subtree of placement().partials(rank()) into an array of its own");
  }
  return {placement_, {partials.begin(), partials.end()}, nullptr, {}};
}

void Collectives::require_room(size_t size, size_t needed, const char* what) const {
  if (size == needed) return;
  throw input_error(fmt::format("{} has {} elements where {} are needed", what, size, needed),
                    "give each operation memory as long as its slices say");
}

Collectives::Handle Collectives::start(Entry entry) {
  entry.deadline = fabric_.now() + options_.timeout;
  const uint64_t number = next_++;
  Entry& stored = entries_.emplace(number, std::move(entry)).first->second;
  hear_others();
  if (broken_ && stored.operation->state() == Operation::State::kPending) {
    stored.operation->fail(broken_->kind, broken_->peer, "not begun: " + broken_->message);
  } else {
    settle(stored);
  }
  return {number};
}

Collectives::Handle Collectives::all_reduce(std::span<const float* const> partials,
                                            std::span<float> out,
                                            std::optional<AllReduceAlgorithm> algorithm) {
  Entry entry = this->entry(partials);
  if (!algorithm) {
    algorithm = choose_all_reduce(out.size_bytes(), *placement_, options_.costs, options_.exact);
  }
  if (!can_use(*algorithm, *placement_, options_.exact)) {
    throw input_error(fmt::format("{} can't keep the tree here", name_of(*algorithm)),
                      "leave the choice of algorithm open, or set exact = false");
  }
  switch (*algorithm) {
    case AllReduceAlgorithm::kDirect:
      entry.operation = std::make_unique<AllReduceDirect>(
          next_channel(), AllReduceDirect::Arguments{entry.placement.get(), entry.partials, out,
                                                     options_.slice_unit});
      break;
    case AllReduceAlgorithm::kHalvingDoubling:
      entry.operation = std::make_unique<AllReduceHalvingDoubling>(
          next_channel(),
          AllReduceHalvingDoubling::Arguments{entry.partials[0], out, options_.slice_unit});
      break;
    case AllReduceAlgorithm::kRing:
      entry.operation = std::make_unique<AllReduceRing>(
          next_channel(), AllReduceRing::Arguments{entry.partials, out, options_.slice_unit});
      break;
  }
  return start(std::move(entry));
}

Span Collectives::slice_of(size_t length, int rank) const {
  const auto cuts = slice_cuts(length, static_cast<size_t>(world()), options_.slice_unit);
  return {cuts[static_cast<size_t>(rank)], cuts[static_cast<size_t>(rank) + 1]};
}

Collectives::Handle Collectives::reduce_scatter(std::span<const float* const> partials,
                                                size_t length, std::span<float> slice) {
  return reduce_scatter(
      partials, slice_cuts(length, static_cast<size_t>(world()), options_.slice_unit), slice);
}

Collectives::Handle Collectives::reduce_scatter(std::span<const float* const> partials,
                                                std::vector<size_t> cuts, std::span<float> slice) {
  require_room(cuts.size(), static_cast<size_t>(world()) + 1, "the list of cuts of reduce_scatter");
  const auto r = static_cast<size_t>(rank());
  require_room(slice.size(), cuts[r + 1] - cuts[r], "the slice of reduce_scatter");
  Entry entry = this->entry(partials);
  entry.operation = std::make_unique<ReduceScatter>(
      next_channel(), ReduceScatter::Arguments{entry.placement.get(), entry.partials,
                                               std::move(cuts), slice.data()});
  return start(std::move(entry));
}

Collectives::Handle Collectives::all_gather(std::span<std::byte> all, std::vector<size_t> cuts) {
  require_room(cuts.size(), static_cast<size_t>(world()) + 1, "the list of cuts of all_gather");
  require_room(all.size(), cuts.back(), "the memory of all_gather");
  Entry entry;
  entry.operation =
      std::make_unique<AllGather>(next_channel(), AllGather::Arguments{all, std::move(cuts)});
  return start(std::move(entry));
}

Collectives::Handle Collectives::all_gather(std::span<float> all) {
  auto cuts = slice_cuts(all.size(), static_cast<size_t>(world()), options_.slice_unit);
  for (size_t& cut : cuts) cut *= sizeof(float);
  return all_gather(std::as_writable_bytes(all), std::move(cuts));
}

Collectives::Handle Collectives::broadcast(int root, std::span<std::byte> bytes) {
  Entry entry;
  entry.operation = std::make_unique<Broadcast>(next_channel(), Broadcast::Arguments{root, bytes});
  return start(std::move(entry));
}

Collectives::Handle Collectives::gather(int root, std::span<const std::byte> own,
                                        std::span<std::byte> all, std::vector<size_t> cuts) {
  require_room(cuts.size(), static_cast<size_t>(world()) + 1, "the list of cuts of gather");
  const size_t r = static_cast<size_t>(rank());
  require_room(own.size(), cuts[r + 1] - cuts[r], "the own part of gather");
  if (rank() == root) require_room(all.size(), cuts.back(), "the memory of gather");
  Entry entry;
  entry.operation =
      std::make_unique<Gather>(next_channel(), Gather::Arguments{root, own, all, std::move(cuts)});
  return start(std::move(entry));
}

Collectives::Handle Collectives::shift(std::span<const std::byte> own, std::span<std::byte> before,
                                       std::span<const int> ring) {
  Entry entry;
  entry.operation = std::make_unique<Shift>(next_channel(), Shift::Arguments{own, before, ring});
  return start(std::move(entry));
}

Collectives::Handle Collectives::barrier() {
  Entry entry;
  entry.operation = std::make_unique<Barrier>(next_channel());
  return start(std::move(entry));
}

Result<LinkCosts> Collectives::measure_costs() {
  LinkCosts costs = options_.costs;
  Entry entry;
  entry.operation = std::make_unique<Echo>(next_channel(), costs);
  if (Status done = wait(start(std::move(entry))); !done) return done.failure();
  const Status agreed = wait(broadcast(0, std::as_writable_bytes(std::span(&costs, 1))));
  if (!agreed) return agreed.failure();
  set_costs(costs);
  return costs;
}

void Collectives::settle(Entry& entry) {
  if (entry.operation->state() != Operation::State::kPending) return;
  if (entry.operation->advance() == Operation::State::kPending && fabric_.now() >= entry.deadline) {
    entry.operation->fail_late();
  }
  if (entry.operation->state() != Operation::State::kFailed) return;
  // A send may have found a peer gone whose last words have come since they were last asked for.
  hear_others();
  if (broken_) {
    entry.operation->fail(broken_->kind, broken_->peer, "given up: " + broken_->message);
  } else {
    break_with(entry.operation->failure());
  }
}

void Collectives::advance() {
  // First: who gives up says why, and is gone after that. The cause is what it said.
  hear_others();
  for (auto& [number, entry] : entries_) settle(entry);
  if (options_.interrupt != nullptr && options_.interrupt->load())
    break_with({FailureKind::kStaleView, -1, "a new view is being made"});
}

void Collectives::break_with(const Failure& failure) {
  if (broken_) return;
  broken_ = failure;
  for (auto& [number, entry] : entries_) {
    if (entry.operation->state() != Operation::State::kPending) continue;
    entry.operation->fail(failure.kind, failure.peer, "given up: " + failure.message);
  }
  tell_others();
}

void Collectives::tell_others() {
  // In a later view, or after closing, nobody waits for this one any more.
  if (broken_->kind == FailureKind::kStaleView || broken_->kind == FailureKind::kClosed) return;
  said_ = encode(*broken_);
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank() || fabric_.gone(peer)) continue;
    saying_.push_back(fabric_.start_send(peer, farewell_tag_, said_));
  }
  // Some fabrics send only in progress(), and this may be the last call that the caller makes.
  fabric_.progress(fabric_.now());
}

void Collectives::hear_others() {
  if (!farewell_) return;
  const Transfer transfer = fabric_.poll(farewell_);
  if (transfer.pending()) return;
  farewell_ = {};
  // Otherwise all peers are gone, or the view is: operations find out for themselves.
  if (transfer.failed() && transfer.failure != FailureKind::kLength) return;
  const auto failure =
      transfer.done() ? decode(std::span(heard_).first(transfer.bytes), world()) : std::nullopt;
  break_with({failure ? failure->kind : FailureKind::kLength,
              failure ? failure->peer : transfer.peer,
              fmt::format("rank {} gave up: {}", transfer.peer,
                          failure ? failure->message : "for a reason that can't be read")});
}

bool Collectives::is_over(Handle handle) const {
  return entries_.at(handle.number).operation->state() != Operation::State::kPending;
}

Instant Collectives::next_deadline() const {
  Instant next = Instant::max();
  for (const auto& [number, entry] : entries_) {
    if (entry.operation->state() == Operation::State::kPending) {
      next = std::min(next, entry.deadline);
    }
  }
  return next;
}

Status Collectives::wait(Handle handle, Instant deadline) {
  const auto found = entries_.find(handle.number);
  if (found == entries_.end()) {
    throw std::logic_error(fmt::format("operation {} was waited for before", handle.number));
  }
  found->second.deadline = std::min(found->second.deadline, deadline);
  while (true) {
    advance();
    if (is_over(handle)) break;
    fabric_.progress(next_deadline());
  }
  // Who leaves with its last words unsaid would be blamed for what it only noticed.
  const Instant leave = fabric_.now() + kFarewellMost;
  while (!saying_.empty()) {
    std::erase_if(saying_, [&](Ticket ticket) { return !fabric_.poll(ticket).pending(); });
    if (saying_.empty() || !fabric_.progress(leave)) break;
  }
  const Operation& operation = *found->second.operation;
  const Status status =
      operation.state() == Operation::State::kDone ? Status() : Status(operation.failure());
  entries_.erase(found);
  return status;
}

}  // namespace starling
