#include "fabric/shm/shm_fabric.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "fabric/shm/shm_stream.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr uint64_t kSegmentMagic = 0x316D687367727473;  // "strgshm1"
constexpr int kWorldMost = 4096;
constexpr size_t kPageBytes = 4096;
// There is a ring for each pair of ranks: with more than 32 of them rings are shorter, so that all
// together have this much, until they are as short as they may be.
constexpr size_t kAllRingsBytes = 128 << 20;
// Messages in place, under way from one rank to another.
constexpr uint64_t kCells = 64;

size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

// What the segment begins with.
struct ShmFabric::Header {
  uint64_t magic;
  uint64_t world;
  uint64_t ring_bytes;
};

// Where a message in place lies. The sender fills in the place, then offers it: `state` is the
// number of the offer, times two. The receiver copies, then adds one, if it is still the same
// offer; a sender that takes its offer back moves on to the next number, and what was copied does
// not count.
struct ShmFabric::Cell {
  std::atomic<uint64_t> state;
  std::atomic<uint64_t> segment;
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> length;
};

struct ShmFabric::Layout {
  int world;
  size_t ring_bytes;
  size_t roster, barrier, ends, cells, data, bytes;

  Layout(int ranks, size_t ring) : world(ranks), ring_bytes(ring) {
    const size_t pairs = static_cast<size_t>(world) * static_cast<size_t>(world);
    roster = 64;
    barrier = roster + Roster::bytes(world);
    ends = barrier + ShmBarrier::bytes(world);
    cells = ends + pairs * sizeof(ShmRingEnds);
    data = round_up(cells + pairs * kCells * sizeof(Cell), kPageBytes);
    bytes = data + pairs * ring_bytes;
  }

  // That of a segment which make_segment made; throws Error (run_error) for another.
  static Layout of(const SharedSegment& segment) {
    const std::span<const std::byte> memory = segment.bytes();
    Header header{};
    if (memory.size() >= sizeof(header)) std::memcpy(&header, memory.data(), sizeof(header));
    if (header.magic == kSegmentMagic && header.world >= 1 && header.world <= kWorldMost &&
        std::has_single_bit(header.ring_bytes) && header.ring_bytes <= memory.size()) {
      const Layout layout(static_cast<int>(header.world), header.ring_bytes);
      if (layout.bytes == memory.size()) return layout;
    }
    throw run_error("the shared segment is not that of a world of workers",
                    "start workers with `starling train --workers` or `starling launch`");
  }
};

size_t ShmFabric::ring_bytes_for(int world) {
  const size_t pairs = static_cast<size_t>(world) * static_cast<size_t>(world);
  return std::clamp(std::bit_floor(kAllRingsBytes / pairs), kRingBytesLeast, kRingBytesMost);
}

SharedSegment ShmFabric::make_segment(const ShmSegmentOptions& options) {
  if (options.world < 1 || options.world > kWorldMost ||
      (options.ring_bytes != 0 && !std::has_single_bit(options.ring_bytes))) {
    throw std::logic_error("a segment has 1 to 4096 ranks, and rings of a power of two");
  }
  const size_t ring = options.ring_bytes != 0 ? options.ring_bytes : ring_bytes_for(options.world);
  SharedSegment segment = SharedSegment::create("fabric", Layout(options.world, ring).bytes);
  new (segment.bytes().data()) Header{kSegmentMagic, static_cast<uint64_t>(options.world), ring};
  return segment;
}

void ShmFabric::mark_gone_in(const SharedSegment& segment, int rank) {
  const Layout layout = Layout::of(segment);
  if (rank < 0 || rank >= layout.world) {
    throw std::logic_error("no such rank in the segment's world");
  }
  Roster(segment.bytes().subspan(layout.roster), layout.world).mark_gone(rank);
}

ShmFabric::ShmFabric(int segment_fd, int rank, const ShmOptions& options)
    : ShmFabric(std::make_unique<SharedSegment>(SharedSegment::map(segment_fd)), nullptr, rank,
                options) {}

ShmFabric::ShmFabric(const SharedSegment& segment, int rank, const ShmOptions& options)
    : ShmFabric(nullptr, &segment, rank, options) {}

ShmFabric::ShmFabric(std::unique_ptr<SharedSegment> own, const SharedSegment* given, int rank,
                     const ShmOptions& options)
    : StreamFabric({.rank = rank,
                    .world = Layout::of(own ? *own : *given).world,
                    .buffer_bytes_per_peer = options.buffer_bytes_per_peer,
                    .message_bytes_most = UINT64_MAX},
                   this),
      segment_(std::move(own)),
      options_(options),
      spin_(options.spin.count() >= 0 ? options.spin : default_spin(world())),
      cells_used_(static_cast<size_t>(world())) {
  const SharedSegment& segment = segment_ ? *segment_ : *given;
  const Layout layout = Layout::of(segment);
  const std::span<std::byte> memory = segment.bytes();
  const bool spins = spin_.count() > 0;
  roster_ = std::make_unique<Roster>(memory.subspan(layout.roster), world(), rank,
                                     spins ? Roster::Fences::kSleepers : Roster::Fences::kAll);
  barrier_ = std::make_unique<ShmBarrier>(*roster_, memory.subspan(layout.barrier), spin_);
  if (!roster_->enter()) {
    throw run_error(fmt::format("rank {} is taken, or was marked gone before it came", rank),
                    "a lost worker comes back as a new one, in a new view");
  }
  cells_ = reinterpret_cast<Cell*>(&memory[layout.cells]);
  const auto ring = [&](int from, int to) {
    const size_t pair =
        static_cast<size_t>(from) * static_cast<size_t>(world()) + static_cast<size_t>(to);
    return ShmRing{reinterpret_cast<ShmRingEnds*>(&memory[layout.ends]) + pair,
                   memory.subspan(layout.data + pair * layout.ring_bytes, layout.ring_bytes)};
  };
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank) continue;
    add_link(peer, std::make_unique<ShmStream>(*roster_, peer, ring(rank, peer), ring(peer, rank)));
  }
}

ShmFabric::~ShmFabric() { close(); }

void ShmFabric::end_links() {
  roster_->mark_gone(rank());
  drop_links();
}

void ShmFabric::add_segment(const SharedSegment& segment) {
  if (segments_.size() == 64) throw std::logic_error("a fabric has at most 64 segments");
  segments_.push_back(&segment);
  roster_->set_segments(segments_.size() == 64 ? ~uint64_t{0}
                                               : (uint64_t{1} << segments_.size()) - 1);
}

void ShmFabric::idle(Instant deadline, Instant now, Instant idle_since) {
  if (now - idle_since < spin_) {
    roster_->disarm();
    spin_pause();
  } else if (!roster_->armed()) {
    roster_->arm();  // and one more round, which sees what came before the bell was watched
  } else {
    roster_->sleep(deadline, now);
  }
}

void ShmFabric::interrupt() { roster_->ring_self(); }

void ShmFabric::look_around() {
  if (roster_->gone(rank())) close();
}

ShmFabric::Cell& ShmFabric::cell(int from, int to, uint64_t number) const {
  const size_t pair =
      static_cast<size_t>(from) * static_cast<size_t>(world()) + static_cast<size_t>(to);
  return cells_[pair * kCells + number];
}

// A handle is the offer's number and the cell's.
std::optional<uint64_t> ShmFabric::offer_in_place(Index slot) {
  TransferTable::Slot& send = table()[slot];
  const int peer = send.transfer.peer;
  const size_t length = send.transfer.of_bytes;
  uint64_t& used = cells_used_[static_cast<size_t>(peer)];
  if (length < options_.in_place_bytes_least || ~used == 0) return std::nullopt;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const std::optional<size_t> offset = segments_[i]->offset_of(send.source, length);
    if (!offset || ((roster_->segments(peer) >> i) & 1) == 0) continue;
    const uint64_t number = static_cast<uint64_t>(std::countr_one(used));
    used |= uint64_t{1} << number;
    Cell& offered = cell(rank(), peer, number);
    offered.segment = i;
    offered.offset = *offset;
    offered.length = length;
    // Odd: the last offer was taken. Even: it was taken back, or there was none.
    const uint64_t offer = offered.state.load() / 2 + 1;
    offered.state = offer * 2;
    send.handle = offer * kCells + number;
    return send.handle;
  }
  return std::nullopt;
}

bool ShmFabric::was_taken(Index slot) {
  const int peer = table()[slot].transfer.peer;
  const uint64_t number = table()[slot].handle % kCells;
  if (cell(rank(), peer, number).state.load() % 2 == 0) return false;
  cells_used_[static_cast<size_t>(peer)] &= ~(uint64_t{1} << number);
  return true;
}

void ShmFabric::take_back(Index slot) {
  const int peer = table()[slot].transfer.peer;
  const uint64_t handle = table()[slot].handle, number = handle % kCells;
  uint64_t offered = handle / kCells * 2;
  cell(rank(), peer, number).state.compare_exchange_strong(offered, offered + 2);
  cells_used_[static_cast<size_t>(peer)] &= ~(uint64_t{1} << number);
}

bool ShmFabric::settle(int peer, uint64_t handle) {
  uint64_t offered = handle / kCells * 2;
  const bool valid =
      cell(peer, rank(), handle % kCells).state.compare_exchange_strong(offered, offered + 1);
  roster_->ring(peer);
  return valid;
}

bool ShmFabric::fetch(int peer, uint64_t handle, std::span<std::byte> target) {
  const Cell& offered = cell(peer, rank(), handle % kCells);
  if (offered.state.load() != handle / kCells * 2) return false;
  const uint64_t segment = offered.segment, offset = offered.offset, length = offered.length;
  if (segment >= segments_.size() || length != target.size()) return false;
  const std::span<std::byte> memory = segments_[segment]->bytes();
  if (length > memory.size() || offset > memory.size() - length) return false;
  std::memcpy(target.data(), memory.data() + offset, length);
  return settle(peer, handle);
}

void ShmFabric::discard(int peer, uint64_t handle) { settle(peer, handle); }

}  // namespace starling
