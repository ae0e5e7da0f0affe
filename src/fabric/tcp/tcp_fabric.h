// TcpFabric: the fabric over sockets. The ranks find each other by rendezvous(); after that a peer
// that closes or resets a connection is gone at once. Messages that nobody asked for yet are
// buffered up to a limit per peer; beyond it that peer's connection is not read until they are
// received. With a link that paces, peers are reached as over such a link (paced/link_pacer.h); all
// ranks need the same one. One thread, but for wake().
#pragma once

#include <vector>

#include "fabric/paced/link_pacer.h"
#include "fabric/stream_fabric.h"
#include "fabric/tcp/rendezvous.h"
#include "fabric/tcp/tcp_stream.h"

namespace starling {

struct TcpOptions {
  int rank = 0;
  std::vector<TcpAddress> addresses;  // by rank: the world
  JobToken token{};
  uint64_t view = 0;
  int connections_per_peer = 1;  // messages are spread over them by tag
  std::chrono::milliseconds connect_deadline{10'000};
  const std::atomic<bool>* interrupt = nullptr;  // of the meeting: see RendezvousOptions
  size_t buffer_bytes_per_peer = size_t{64} << 20;
  uint64_t message_bytes_most = uint64_t{1} << 36;  // a peer that announces more is lost
  LinkOptions link = {};
};

class TcpFabric final : public StreamFabric {
 public:
  // Meets the others; see rendezvous() for what it throws. The listener is closed after it.
  TcpFabric(TcpListener listener, const TcpOptions& options);
  ~TcpFabric() override;

  // Breaks the connections to the peer, as a network may: for faults on purpose. Any thread.
  void sever(int peer) const;

 private:
  void idle(Instant deadline, Instant now, Instant idle_since) override;
  void interrupt() override;
  void look_around() override;
  void end_links() override;
  void take_events(const timespec& timeout);

  Socket epoll_;
  Socket bell_;  // an eventfd
  bool looked_ = false;
  std::vector<std::vector<int>> sockets_;  // by peer
  std::shared_ptr<LinkPacer> pacer_;       // null: as fast as it goes
};

}  // namespace starling
