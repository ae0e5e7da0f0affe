#include "fabric/shm/shm_stream.h"

#include <algorithm>
#include <cstring>

namespace starling {
namespace {

// Large messages are passed on in pieces of this size, so that both sides copy at the same time.
constexpr size_t kPieceBytes = 16 << 10;

}  // namespace

ShmStream::ShmStream(Roster& roster, int peer, ShmRing out, ShmRing in)
    : roster_(roster), peer_(peer), out_(out), in_(in) {}

size_t ShmStream::room() const {
  // The peer may have written nonsense over its end: never more than there is.
  const uint64_t used = written_ - peer_read_;
  return used > out_.data.size() ? 0 : out_.data.size() - used;
}

// Copies what there is room for, and shows it piece by piece.
size_t ShmStream::put(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    if (room() < std::min(bytes.size() - done, kPieceBytes)) {
      peer_read_ = out_.ends->read.load(std::memory_order_acquire);
      if (room() == 0) break;
    }
    const size_t at = written_ & (out_.data.size() - 1);
    const size_t count =
        std::min({bytes.size() - done, room(), out_.data.size() - at, kPieceBytes});
    std::memcpy(&out_.data[at], bytes.data() + done, count);
    done += count;
    written_ += count;
    if (done < bytes.size()) out_.ends->written.store(written_, std::memory_order_release);
  }
  return done;
}

ptrdiff_t ShmStream::write(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (roster_.gone(peer_)) return kLost;
  size_t done = put(head);
  if (done == head.size()) done += put(body);
  if (done == 0) return 0;
  // Sequentially consistent: either the peer sees it before it sleeps, or we see it asleep.
  out_.ends->written.store(written_);
  roster_.ring(peer_);
  return static_cast<ptrdiff_t>(done);
}

ptrdiff_t ShmStream::read(std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size()) {
    if (peer_written_ == read_) {
      // In this order: what it wrote before it went is still to be read.
      const bool lost = done == 0 && roster_.gone(peer_);
      peer_written_ = in_.ends->written.load();
      if (peer_written_ == read_) {
        if (lost) return kLost;
        break;
      }
      if (peer_written_ - read_ > in_.data.size()) return kLost;
    }
    const size_t at = read_ & (in_.data.size() - 1);
    const size_t count = std::min({into.size() - done, static_cast<size_t>(peer_written_ - read_),
                                   in_.data.size() - at, kPieceBytes});
    std::memcpy(into.data() + done, &in_.data[at], count);
    done += count;
    read_ += count;
    if (done < into.size()) in_.ends->read.store(read_, std::memory_order_release);
  }
  if (done == 0) return 0;
  in_.ends->read.store(read_);
  roster_.ring(peer_);
  return static_cast<ptrdiff_t>(done);
}

}  // namespace starling
