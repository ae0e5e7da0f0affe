#include "fabric/tcp/tcp_fabric.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "fabric/paced/paced_stream.h"
#include "starling/error.h"

namespace starling {
namespace {

void watch(int epoll, int fd, uint32_t events, void* data) {
  epoll_event event{};
  event.events = events | EPOLLET;
  event.data.ptr = data;
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
    throw run_error(fmt::format("a connection can't be watched: {}", std::strerror(errno)),
                    "raise the number of open files with `ulimit -n`");
  }
}

}  // namespace

TcpFabric::TcpFabric(TcpListener listener, const TcpOptions& options)
    : StreamFabric({.rank = options.rank,
                    .world = static_cast<int>(options.addresses.size()),
                    .buffer_bytes_per_peer = options.buffer_bytes_per_peer,
                    .message_bytes_most = options.message_bytes_most},
                   nullptr),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_ || !bell_) {
    throw run_error(fmt::format("no descriptors to be had: {}", std::strerror(errno)),
                    "raise the number of open files with `ulimit -n`");
  }
  const TcpListener own = std::move(listener);
  std::vector<std::vector<Socket>> peers =
      rendezvous(own, {.rank = options.rank,
                       .addresses = options.addresses,
                       .token = options.token,
                       .view = options.view,
                       .connections_per_peer = options.connections_per_peer,
                       .deadline = options.connect_deadline,
                       .interrupt = options.interrupt});
  watch(epoll_.fd(), bell_.fd(), EPOLLIN, nullptr);
  sockets_.resize(static_cast<size_t>(world()));
  if (options.link.paces()) pacer_ = std::make_shared<LinkPacer>(options.link);
  for (int peer = 0; peer < world(); ++peer) {
    for (Socket& connected : peers[static_cast<size_t>(peer)]) {
      auto stream = std::make_unique<TcpStream>(std::move(connected));
      watch(epoll_.fd(), stream->fd(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, stream.get());
      sockets_[static_cast<size_t>(peer)].push_back(stream->fd());
      if (pacer_) {
        add_link(peer, std::make_unique<PacedStream>(pacer_, std::move(stream)));
      } else {
        add_link(peer, std::move(stream));
      }
    }
  }
  enter_view(options.view);
}

TcpFabric::~TcpFabric() { close(); }

void TcpFabric::sever(int peer) const {
  for (const int socket : sockets_[static_cast<size_t>(peer)]) shutdown(socket, SHUT_RDWR);
}

void TcpFabric::end_links() { drop_links(); }

void TcpFabric::take_events(const timespec& timeout) {
  std::array<epoll_event, 64> events;
  const int count =
      epoll_pwait2(epoll_.fd(), events.data(), static_cast<int>(events.size()), &timeout, nullptr);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.ptr) static_cast<TcpStream*>(event.data.ptr)->note_events(event.events);
  }
}

void TcpFabric::look_around() {
  if (!std::exchange(looked_, false)) take_events({});
  if (pacer_) pacer_->advance();
}

void TcpFabric::idle(Instant deadline, Instant now, Instant) {
  if (pacer_) deadline = std::min(deadline, pacer_->next_look());
  // Not for ever: some systems refuse a time that is too long.
  const std::chrono::nanoseconds left = std::clamp<std::chrono::nanoseconds>(
      deadline - now, std::chrono::nanoseconds(0), std::chrono::hours(1));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  take_events({.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()});
  looked_ = true;
}

void TcpFabric::interrupt() {
  const uint64_t one = 1;
  static_cast<void>(!::write(bell_.fd(), &one, sizeof(one)));
}

}  // namespace starling
