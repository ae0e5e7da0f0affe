// ShmFabric: the fabric of processes on one host. One shared segment, made by the launcher and
// inherited by all, holds the roster, a ring for every ordered pair of ranks, and a barrier. Large
// messages flow through the ring in pieces, or, when they lie in a segment that both sides have
// added, go as a handle: the receiver copies straight from where they lie.
//
// A peer is gone when it closes, when somebody marks it in the roster (the launcher that reaped
// it), or when its process is found dead, at the latest after 100 ms by anyone who waits. A rank
// that was itself marked gone closes: the others have gone on without it. One thread per rank.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "fabric/shm/roster.h"
#include "fabric/shm/shared_segment.h"
#include "fabric/shm/shm_barrier.h"
#include "fabric/stream_fabric.h"

namespace starling {

struct ShmSegmentOptions {
  int world = 1;
  size_t ring_bytes = 0;  // per ordered pair, a power of two; 0: by the number of ranks
};

struct ShmOptions {
  size_t buffer_bytes_per_peer = size_t{64} << 20;  // of messages that nobody asked for yet
  size_t in_place_bytes_least = 32 << 10;           // smaller ones are quicker through the ring
  // How long a wait spins before it sleeps; negative: by the numbers of ranks and cores. All ranks
  // spin, or none does.
  std::chrono::nanoseconds spin{-1};
};

class ShmFabric final : public StreamFabric, private InPlaceSource {
 public:
  // The segment of a world: the launcher makes it, and its ranks inherit the descriptor. Throws
  // Error (run_error) when there is no room.
  static SharedSegment make_segment(const ShmSegmentOptions& options);
  // By default. A message may be longer than its ring.
  static constexpr size_t kRingBytesLeast = 4 << 10, kRingBytesMost = 128 << 10;
  static size_t ring_bytes_for(int world);
  // Marks a rank of that segment's world gone and wakes all: for the launcher that reaped it.
  static void mark_gone_in(const SharedSegment& segment, int rank);

  // Enters the world of the segment as `rank`; the descriptor stays the caller's. Throws Error
  // (run_error) when the descriptor is no such segment or the rank is marked gone.
  ShmFabric(int segment_fd, int rank, const ShmOptions& options = {});
  // The same, in a mapping that outlives the fabric: ranks that are threads of one process share
  // it.
  ShmFabric(const SharedSegment& segment, int rank, const ShmOptions& options = {});
  ~ShmFabric() override;

  // Lets messages that lie in this segment go in place. All ranks add the same segments in the same
  // order, at most 64; the segment outlives the fabric.
  void add_segment(const SharedSegment& segment);

  // The world's own barrier.
  ShmBarrier& barrier() { return *barrier_; }
  // For barriers in segments of the caller's.
  Roster& roster() { return *roster_; }
  std::chrono::nanoseconds spin() const { return spin_; }

 private:
  struct Header;
  struct Cell;
  struct Layout;

  ShmFabric(std::unique_ptr<SharedSegment> own, const SharedSegment* given, int rank,
            const ShmOptions& options);

  void idle(Instant deadline, Instant now, Instant idle_since) override;
  void interrupt() override;
  void look_around() override;
  void end_links() override;
  std::optional<uint64_t> offer_in_place(Index slot) override;
  bool was_taken(Index slot) override;
  void take_back(Index slot) override;
  bool fetch(int peer, uint64_t handle, std::span<std::byte> target) override;
  void discard(int peer, uint64_t handle) override;
  Cell& cell(int from, int to, uint64_t number) const;
  bool settle(int peer, uint64_t handle);

  const std::unique_ptr<SharedSegment> segment_;  // if the mapping is ours
  const ShmOptions options_;
  const std::chrono::nanoseconds spin_;
  std::unique_ptr<Roster> roster_;
  std::unique_ptr<ShmBarrier> barrier_;
  Cell* cells_ = nullptr;
  std::vector<const SharedSegment*> segments_;
  std::vector<uint64_t> cells_used_;  // by peer: a bit per cell
};

}  // namespace starling
