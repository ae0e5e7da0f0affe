#include "fabric/paced/paced_stream.h"

#include <algorithm>
#include <cstring>

#include "fabric/frame.h"

namespace starling {
namespace {

constexpr size_t kLengthBytes = 4;
// What a parcel takes beside its bytes, so that many small ones count too.
constexpr size_t kParcelCostBytes = 64;
// No parcel is on its way for longer: who says so is not to be believed.
constexpr std::chrono::hours kAwayMost{1};

}  // namespace

PacedStream::PacedStream(std::shared_ptr<LinkPacer> pacer, std::unique_ptr<ByteStream> stream)
    : pacer_(std::move(pacer)), stream_(std::move(stream)) {
  pacer_->attach(this);
}

PacedStream::~PacedStream() { pacer_->detach(this); }

std::string PacedStream::why_lost() const {
  return nonsense_ ? "sent what is not a parcel of a paced stream" : stream_->why_lost();
}

void PacedStream::open_parcel(size_t bytes, Instant now) {
  departed_ = pacer_->depart(bytes, now);
  left_ = bytes;
  head_out_left_ = head_out_.size();
  write_little_endian(head_out_.data(), bytes, kLengthBytes);
  write_little_endian(head_out_.data() + kLengthBytes,
                      static_cast<uint64_t>(departed_.time_since_epoch().count()),
                      kParcelHeadBytes - kLengthBytes);
}

// Who writes goes on with the same bytes until its frame is ended, so a parcel that is open is
// always filled, though it may take several calls.
ptrdiff_t PacedStream::write(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (write_lost_) return 0;
  if (left_ == 0) {
    const Instant now = pacer_->now();
    if (departed_ > now + kAheadOfWire) {
      room_at_ = departed_ - kAheadOfWire;
      return 0;
    }
    open_parcel(std::min(head.size() + body.size(), kParcelBytesMost), now);
  }
  size_t taken = 0;
  while (left_ > 0) {
    const std::span<const std::byte> lead = std::span(head_out_).last(head_out_left_);
    const std::span<const std::byte> rest =
        taken < head.size() ? head.subspan(taken) : body.subspan(taken - head.size());
    const ptrdiff_t wrote = stream_->write(lead, rest.first(std::min(rest.size(), left_)));
    if (wrote == kLost) {
      write_lost_ = true;  // read() tells it, after what came before
      break;
    }
    if (wrote == 0) break;
    const size_t of_lead = std::min(static_cast<size_t>(wrote), head_out_left_);
    const size_t of_rest = static_cast<size_t>(wrote) - of_lead;
    head_out_left_ -= of_lead;
    left_ -= of_rest;
    taken += of_rest;
  }
  return static_cast<ptrdiff_t>(taken);
}

// Whether the head of the next parcel is there, and makes sense.
bool PacedStream::take_in_head() {
  while (head_in_got_ < head_in_.size()) {
    const ptrdiff_t got = stream_->read(std::span(head_in_).subspan(head_in_got_));
    if (got == kLost) read_lost_ = true;
    if (got <= 0) return false;
    head_in_got_ += static_cast<size_t>(got);
  }
  if (coming_.bytes) return true;
  const size_t length = read_little_endian(head_in_.data(), kLengthBytes);
  const Instant departed(Instant::duration(static_cast<int64_t>(
      read_little_endian(head_in_.data() + kLengthBytes, kParcelHeadBytes - kLengthBytes))));
  if (length == 0 || length > kParcelBytesMost || departed < Instant{} ||
      departed > pacer_->advanced_at() + kAwayMost) {
    nonsense_ = read_lost_ = true;
    return false;
  }
  coming_ = {.at = departed + pacer_->delay(),
             .length = length,
             .bytes = std::make_unique_for_overwrite<std::byte[]>(length)};
  coming_got_ = 0;
  return true;
}

void PacedStream::take_in() {
  while (!read_lost_ && held_bytes_ < pacer_->held_bytes_most()) {
    if (!take_in_head()) return;
    const ptrdiff_t got =
        stream_->read({coming_.bytes.get() + coming_got_, coming_.length - coming_got_});
    if (got == kLost) read_lost_ = true;
    if (got <= 0) return;
    coming_got_ += static_cast<size_t>(got);
    if (coming_got_ < coming_.length) continue;
    held_bytes_ += coming_.length + kParcelCostBytes;
    parcels_.push_back(std::move(coming_));
    coming_ = {};
    head_in_got_ = 0;
  }
}

PacedStream::Arrival PacedStream::next_arrival() const {
  if (let_in_ == parcels_.size()) return {};
  return {parcels_[let_in_].at, parcels_[let_in_].length};
}

void PacedStream::let_in(Instant due) { parcels_[let_in_++].at = due; }

// What could be read or written before is no reason to look again: nobody wanted it.
Instant PacedStream::next_look() const {
  Instant next = Instant::max();
  if (!parcels_.empty() && parcels_.front().at > pacer_->advanced_at()) next = parcels_.front().at;
  if (room_at_ > pacer_->advanced_at()) next = std::min(next, room_at_);
  return next;
}

ptrdiff_t PacedStream::read(std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size() && let_in_ > 0 && parcels_.front().at <= pacer_->advanced_at()) {
    const Parcel& parcel = parcels_.front();
    const size_t count = std::min(into.size() - done, parcel.length - front_read_);
    std::memcpy(into.data() + done, parcel.bytes.get() + front_read_, count);
    done += count;
    front_read_ += count;
    if (front_read_ < parcel.length) break;
    held_bytes_ -= parcel.length + kParcelCostBytes;
    parcels_.pop_front();
    --let_in_;
    front_read_ = 0;
  }
  if (done == 0 && parcels_.empty() && read_lost_) return kLost;
  return static_cast<ptrdiff_t>(done);
}

}  // namespace starling
