// StreamFabric: messages over streams of bytes. It cuts messages into frames, queues what is to be
// sent per link, and puts what comes into the mailbox. What the streams are (rings in shared
// memory, sockets, later TLS) and how to wait for them is for the fabrics that derive from it.
//
// A peer may have several links; a tag always uses the same one, which keeps its order. One thread,
// but for wake().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "fabric/fabric_base.h"
#include "fabric/frame.h"

namespace starling {

// Bytes to and from one peer. Nothing blocks.
class ByteStream {
 public:
  static constexpr ptrdiff_t kLost = -1;

  virtual ~ByteStream() = default;
  // Takes what it can of `head`, then of `body`: how many bytes; 0 when it is full; or kLost.
  virtual ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  // Reads what there is: how many bytes; 0 when there is nothing; or kLost, once all was read.
  virtual ptrdiff_t read(std::span<std::byte> into) = 0;
  // The other side has ended, though there may be something left to read.
  virtual bool ended() const = 0;
  // Whether it was lost because the other side closed it, and not broken.
  virtual bool ended_in_order() const { return false; }
  // This side says no more; the other will see it end.
  virtual void hang_up() = 0;
  // Why it was lost, in words that follow "peer 3".
  virtual std::string why_lost() const = 0;
};

class StreamFabric : public FabricBase {
 public:
  Instant now() const final { return std::chrono::steady_clock::now(); }
  bool progress(Instant deadline) final;
  void wake() final;

 protected:
  struct Options {
    int rank = 0;
    int world = 1;
    size_t buffer_bytes_per_peer = 0;
    uint64_t message_bytes_most = 0;
  };
  StreamFabric(const Options& options, InPlaceSource* source);

  // Links of a peer are numbered as they are added.
  void add_link(int peer, std::unique_ptr<ByteStream> stream);
  ByteStream& stream(int peer, size_t link = 0) { return *links_of(peer)[link].stream; }
  // Destroys the streams: after this nothing is read or written.
  void drop_links() { links_.clear(); }

  // Waits until a stream may have moved or wake() was called, at most to the deadline; may return
  // early. `idle_since` is when something last moved.
  virtual void idle(Instant deadline, Instant now, Instant idle_since) = 0;
  // Called by wake(), on any thread: ends idle().
  virtual void interrupt() = 0;
  // Looks for what streams don't tell by themselves; called before every round.
  virtual void look_around() {}

  // Whether the send can go as a handle instead of its bytes.
  virtual std::optional<uint64_t> offer_in_place(Index) { return std::nullopt; }
  // Whether the peer has taken what was offered.
  virtual bool was_taken(Index) { return true; }
  virtual void take_back(Index) {}

  void begin_send(Index slot) final;
  void cancel_send(Index slot) final;
  void fail_sends(int peer, FailureKind failure) final;

 private:
  struct Link {
    int peer = 0;
    std::unique_ptr<ByteStream> stream;
    bool lost = false;      // nothing more is read or written
    bool ended = false;     // it broke, or was closed by the peer
    bool draining = false;  // one of the peer's did; what had come is being taken
    // Sending: the first of the queue, if begun.
    SlotList queue;
    bool begun = false;
    bool in_place = false;
    size_t sent = 0;  // of head and body
    size_t head_bytes = 0;
    std::array<std::byte, kFrameHeaderBytes + kHandleBytes> head{};
    // Receiving.
    std::array<std::byte, kFrameHeaderBytes + kHandleBytes> head_in{};
    size_t head_in_got = 0;
    Incoming* message = nullptr;
  };

  std::span<Link> links_of(int peer);
  bool pump();
  bool pump_out(Link& link);
  bool pump_in(Link& link);
  bool pump_self();
  bool collect_taken();
  void begin_frame(Link& link, Index slot);
  void end_frame(Link& link);
  enum class Head { kPartial, kHeld, kTaken, kLost };
  Head read_head(Link& link, bool& moved);
  void lose_link(Link& link);
  void detach_send(Link& link, Index slot);

  const uint64_t message_bytes_most_;
  const bool takes_in_place_;
  std::vector<std::vector<Link>> links_;  // by peer
  SlotList to_self_;
  std::vector<SlotList> offered_;  // by peer: sent as handles, not yet taken
  size_t offered_count_ = 0;
  std::unique_ptr<std::byte[]> scratch_;  // for what is dropped
  Instant idle_since_{};
  std::atomic<bool> woken_ = false;
};

}  // namespace starling
