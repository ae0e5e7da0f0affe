#include "fabric/tcp/tcp_stream.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace starling {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
// From this size on a read goes straight to its place.
constexpr size_t kDirectBytes = 16 << 10;

}  // namespace

TcpStream::TcpStream(Socket socket)
    : socket_(std::move(socket)),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {
  set_no_delay(socket_.fd());
}

// What was not read would make the system reset the connection, and the other side might lose what
// it has not read yet: so it is read away.
TcpStream::~TcpStream() {
  hang_up();
  for (int i = 0; i < 64; ++i) {
    if (recv(socket_.fd(), buffer_.get(), kBufferBytes, MSG_DONTWAIT) <= 0) break;
  }
}

void TcpStream::hang_up() { shutdown(socket_.fd(), SHUT_WR); }

void TcpStream::note_events(uint32_t events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) readable_ = true;
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) writable_ = true;
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) ended_ = true;
}

ptrdiff_t TcpStream::lost(int error) {
  ended_ = true;
  in_order_ = error == 0;
  readable_ = true;  // a write may find out before any event tells: what came is still to be read
  if (error == ECONNRESET || error == EPIPE) {
    why_lost_ = "closed the connection";
  } else if (error != 0) {
    why_lost_ = fmt::format("can't be reached: {}", std::strerror(error));
  }
  return kLost;
}

ptrdiff_t TcpStream::write(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (!writable_) return 0;
  std::array<iovec, 2> parts = {iovec{const_cast<std::byte*>(head.data()), head.size()},
                                iovec{const_cast<std::byte*>(body.data()), body.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  while (true) {
    const ssize_t wrote = sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote >= 0) return wrote;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != ENOBUFS) return lost(errno);
    writable_ = false;
    return 0;
  }
}

ptrdiff_t TcpStream::receive(std::span<std::byte> into) {
  if (!readable_) return 0;
  while (true) {
    const ssize_t got = recv(socket_.fd(), into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) return lost(0);
    if (got > 0) {
      // Less than was asked for: there is no more, and the next will be told; but an end is told
      // only once.
      if (static_cast<size_t>(got) < into.size() && !ended_) readable_ = false;
      return got;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return lost(errno);
    readable_ = false;
    return 0;
  }
}

ptrdiff_t TcpStream::read(std::span<std::byte> into) {
  if (begin_ == end_) {
    if (into.size() >= kDirectBytes) return receive(into);
    const ptrdiff_t got = receive({buffer_.get(), kBufferBytes});
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<size_t>(got);
  }
  const size_t count = std::min(into.size(), end_ - begin_);
  std::memcpy(into.data(), buffer_.get() + begin_, count);
  begin_ += count;
  return static_cast<ptrdiff_t>(count);
}

}  // namespace starling
