// ShmStream: bytes between two processes of one host, through two rings in shared memory, one per
// direction. A ring has one writer and one reader; each moves only its own end. One thread per
// side.
#pragma once

#include <atomic>
#include <cstdint>

#include "fabric/shm/roster.h"
#include "fabric/stream_fabric.h"

namespace starling {

// The ends of a ring count bytes and never turn back; both are zero at first.
struct ShmRingEnds {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

struct ShmRing {
  ShmRingEnds* ends = nullptr;
  std::span<std::byte> data;  // a power of two long
};

class ShmStream final : public ByteStream {
 public:
  // The roster outlives the stream, as does the memory.
  ShmStream(Roster& roster, int peer, ShmRing out, ShmRing in);

  ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) override;
  ptrdiff_t read(std::span<std::byte> into) override;
  bool ended() const override { return roster_.gone(peer_); }
  // That a rank ends is told by the roster, to all at once.
  void hang_up() override {}
  std::string why_lost() const override { return "is gone"; }

 private:
  size_t put(std::span<const std::byte> bytes);
  size_t room() const;

  Roster& roster_;
  const int peer_;
  const ShmRing out_, in_;
  uint64_t written_ = 0;    // our end of the ring out
  uint64_t read_ = 0;       // our end of the ring in
  uint64_t peer_read_ = 0;  // what was last seen of the other ends
  uint64_t peer_written_ = 0;
};

}  // namespace starling
