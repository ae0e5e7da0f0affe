// PacedStream: a stream over a link of another rate and delay (link_pacer.h). In the stream below
// it, bytes lie in parcels behind a head: how many they are, and when the last of them has left.
//
// What has come but is not due is held here, up to a limit; then the stream below is not read, and
// its sender has to wait. A stream that ends is lost once all that came whole was read, so the end
// of a peer is seen as late as its last bytes. One thread.
#pragma once

#include <array>
#include <deque>
#include <memory>

#include "fabric/paced/link_pacer.h"
#include "fabric/stream_fabric.h"

namespace starling {

class PacedStream final : public ByteStream {
 public:
  // So many segments that at 100 Mbit/s a parcel is on the wire for about a millisecond.
  static constexpr size_t kParcelBytesMost = 11 * kSegmentBytes;
  static constexpr size_t kParcelHeadBytes = 12;

  PacedStream(std::shared_ptr<LinkPacer> pacer, std::unique_ptr<ByteStream> stream);
  ~PacedStream() override;

  ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) override;
  ptrdiff_t read(std::span<std::byte> into) override;
  bool ended() const override { return stream_->ended(); }
  bool ended_in_order() const override { return !nonsense_ && stream_->ended_in_order(); }
  void hang_up() override { stream_->hang_up(); }
  std::string why_lost() const override;

  // For the pacer. Reads what there is of the stream below.
  void take_in();
  // The first parcel that the interface has not taken in: when it comes there; never if there is
  // none.
  struct Arrival {
    Instant at = Instant::max();
    size_t bytes = 0;
  };
  Arrival next_arrival() const;
  // The interface takes in that parcel, and is done with it then.
  void let_in(Instant due);
  // As LinkPacer's.
  Instant next_look() const;

 private:
  struct Parcel {
    Instant at{};  // when it comes to the interface; once that was let in: when it may be read
    size_t length = 0;
    std::unique_ptr<std::byte[]> bytes;
  };
  bool take_in_head();
  void open_parcel(size_t bytes, Instant now);

  const std::shared_ptr<LinkPacer> pacer_;
  const std::unique_ptr<ByteStream> stream_;

  // Writing: the parcel that is open, if it has bytes left.
  std::array<std::byte, kParcelHeadBytes> head_out_{};
  size_t head_out_left_ = 0;
  size_t left_ = 0;
  Instant departed_{};  // when the last parcel has left
  Instant room_at_{};   // when a write that was refused may be tried again
  bool write_lost_ = false;

  // Reading: the parcel that comes, and those that are here.
  std::array<std::byte, kParcelHeadBytes> head_in_{};
  size_t head_in_got_ = 0;
  Parcel coming_;
  size_t coming_got_ = 0;
  std::deque<Parcel> parcels_;
  size_t let_in_ = 0;      // so many of them, the first
  size_t front_read_ = 0;  // of the first
  size_t held_bytes_ = 0;
  bool read_lost_ = false;
  bool nonsense_ = false;
};

}  // namespace starling
