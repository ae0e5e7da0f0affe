#include "fabric/paced/link_pacer.h"

#include <algorithm>

#include "fabric/paced/paced_stream.h"

namespace starling {
namespace {

constexpr double kHeldBytesLeast = 1 << 20;
constexpr double kHeldBytesMost = 256 << 20;

// Twice what can be between the ends, so that a full line waits for nobody.
size_t held_bytes(const LinkOptions& options) {
  if (options.bits_per_second == 0) return static_cast<size_t>(kHeldBytesMost);
  const std::chrono::duration<double> way = options.delay + kAheadOfWire;
  const double between = static_cast<double>(options.bits_per_second) / 8 * way.count();
  return static_cast<size_t>(std::clamp(2 * between, kHeldBytesLeast, kHeldBytesMost));
}

}  // namespace

LinkPacer::LinkPacer(const LinkOptions& options, Clock clock)
    : clock_(std::move(clock)),
      delay_(options.delay),
      held_bytes_most_(held_bytes(options)),
      out_(options.bits_per_second),
      in_(options.bits_per_second) {}

void LinkPacer::advance() {
  advanced_at_ = clock_();
  for (PacedStream* stream : streams_) stream->take_in();
  while (true) {
    const auto first = std::min_element(streams_.begin(), streams_.end(),
                                        [](const PacedStream* a, const PacedStream* b) {
                                          return a->next_arrival().at < b->next_arrival().at;
                                        });
    if (first == streams_.end()) return;
    const PacedStream::Arrival arrival = (*first)->next_arrival();
    if (arrival.at > advanced_at_) return;
    (*first)->let_in(in_.receive(wire_bytes(arrival.bytes), arrival.at));
  }
}

Instant LinkPacer::next_look() const {
  Instant next = Instant::max();
  for (const PacedStream* stream : streams_) next = std::min(next, stream->next_look());
  return next;
}

}  // namespace starling
