// Whatever bytes come over a connection: a hello is refused or its numbers are within their bounds;
// frames become messages of the length that they announce, or the peer is lost. Nothing is
// allocated beyond the limits. The first byte says into how small pieces the stream is cut.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fabric/frame.h"
#include "fabric/stream_fabric.h"
#include "fabric/tcp/hello.h"

namespace starling {
namespace {

constexpr size_t kLimitBytes = 4096;

// What the fuzzer wrote, as a connection that ends after it.
class WrittenStream final : public ByteStream {
 public:
  WrittenStream(std::span<const std::byte> bytes, size_t piece) : bytes_(bytes), piece_(piece) {}

  ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) override {
    return static_cast<ptrdiff_t>(head.size() + body.size());
  }
  ptrdiff_t read(std::span<std::byte> into) override {
    if (bytes_.empty()) return kLost;
    const size_t count = std::min({into.size(), bytes_.size(), piece_});
    std::memcpy(into.data(), bytes_.data(), count);
    bytes_ = bytes_.subspan(count);
    return static_cast<ptrdiff_t>(count);
  }
  bool ended() const override { return bytes_.empty(); }
  void hang_up() override {}
  std::string why_lost() const override { return "closed the connection"; }

 private:
  std::span<const std::byte> bytes_;
  const size_t piece_;
};

class WrittenFabric final : public StreamFabric {
 public:
  WrittenFabric(std::span<const std::byte> bytes, size_t piece)
      : StreamFabric({.rank = 0,
                      .world = 2,
                      .buffer_bytes_per_peer = kLimitBytes,
                      .message_bytes_most = 2 * kLimitBytes},
                     nullptr) {
    add_link(1, std::make_unique<WrittenStream>(bytes, piece));
  }
  ~WrittenFabric() override { close(); }

 private:
  void idle(Instant, Instant, Instant) override {}
  void interrupt() override {}
  void end_links() override { drop_links(); }
};

void require(bool fact) {
  if (!fact) std::abort();
}

void read_hello(std::span<const std::byte> bytes) {
  if (bytes.size() < kHelloBytes) return;
  const auto hello = parse_hello(bytes.first<kHelloBytes>());
  if (!hello || hello->version != kProtocolVersion) return;
  require(hello->rank < hello->world && hello->world <= kWorldMost);
  require(hello->connection < hello->connections && hello->connections <= kConnectionsMost);
  // What was read is written again as the same hello.
  std::array<std::byte, kHelloBytes> again;
  write_hello(*hello, again);
  require(parse_hello(again) == hello);
}

// Some receives are there before the messages, some come after; in the middle the view changes.
void read_frames(std::span<const std::byte> bytes, size_t piece) {
  WrittenFabric fabric(bytes, piece);
  std::vector<std::byte> exact(16), any(2 * kLimitBytes), last(2 * kLimitBytes);
  const Ticket first = fabric.start_receive(1, 1, exact);
  const Ticket second = fabric.start_receive_up_to(kAnyPeer, 2, any);
  fabric.progress(Instant{});
  const Transfer one = fabric.poll(first), two = fabric.poll(second);
  if (one.done()) require(one.bytes == exact.size());
  if (two.done()) require(two.bytes <= any.size() && two.peer == 1);
  fabric.enter_view(1);
  if (one.pending()) require(fabric.poll(first).failed());
  if (two.pending()) require(fabric.poll(second).failed());
  for (Tag tag = 0; tag < 4; ++tag) {
    const Ticket ticket = fabric.start_receive_up_to(1, tag, last);
    for (int round = 0; round < 100 && !fabric.gone(1); ++round) fabric.progress(Instant{});
    if (fabric.poll(ticket).pending()) fabric.cancel(ticket);
  }
}

}  // namespace
}  // namespace starling

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace starling;
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  read_hello(bytes);
  read_frames(bytes, data[0] == 0 ? SIZE_MAX : data[0]);
  return 0;
}
