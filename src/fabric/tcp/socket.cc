#include "fabric/tcp/socket.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

// A numeric address as the system wants it.
struct RawAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  explicit RawAddress(const TcpAddress& address) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (inet_pton(AF_INET, address.host.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(address.port);
      length = sizeof(*v4);
    } else if (inet_pton(AF_INET6, address.host.c_str(), &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
      v6->sin6_port = htons(address.port);
      length = sizeof(*v6);
    } else {
      throw input_error(fmt::format("'{}' is not a numeric address", address.host),
                        "give an address such as 127.0.0.1 or ::1");
    }
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Socket make_socket(const RawAddress& address) {
  Socket made(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made) {
    throw run_error(fmt::format("no socket to be had: {}", std::strerror(errno)),
                    "raise the number of open files with `ulimit -n`");
  }
  return made;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

std::string TcpAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

TcpListener::TcpListener(const TcpAddress& address) : address_(address) {
  const RawAddress raw(address);
  socket_ = make_socket(raw);
  if (address.port != 0) {
    // A port that was in use a moment ago may be had; one that is in use may not.
    const int on = 1;
    setsockopt(socket_.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  }
  if (bind(socket_.fd(), raw.get(), raw.length) != 0 || listen(socket_.fd(), SOMAXCONN) != 0) {
    const int error = errno;
    throw run_error(fmt::format("can't listen on {}: {}", address.text(), std::strerror(error)),
                    error == EADDRINUSE
                        ? "another program has this port: choose another, or 0 for any free one"
                        : "choose an address of this machine, and a port from 1024 on");
  }
  RawAddress given(address);
  getsockname(socket_.fd(), reinterpret_cast<sockaddr*>(&given.storage), &given.length);
  address_.port = ntohs(given.storage.ss_family == AF_INET
                            ? reinterpret_cast<const sockaddr_in*>(&given.storage)->sin_port
                            : reinterpret_cast<const sockaddr_in6*>(&given.storage)->sin6_port);
}

TcpListener TcpListener::adopt(int fd) {
  Socket socket(fd);
  TcpAddress address;
  sockaddr_storage given{};
  socklen_t length = sizeof(given);
  int listening = 0;
  socklen_t size = sizeof(listening);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&given), &length) != 0) {
    throw run_error(fmt::format("descriptor {} is no socket that listens", fd),
                    "it comes from the launcher: start workers with `starling launch`");
  }
  address.port =
      ntohs(given.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(&given)->sin_port
                                       : reinterpret_cast<const sockaddr_in6*>(&given)->sin6_port);
  return {std::move(socket), address};
}

Socket TcpListener::accept() const {
  return Socket(accept4(socket_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

Socket begin_connect(const TcpAddress& address) {
  const RawAddress raw(address);
  Socket made = make_socket(raw);
  // A result comes later, also that of a failure at once: by the socket's error.
  static_cast<void>(connect(made.fd(), raw.get(), raw.length));
  return made;
}

void set_no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace starling
