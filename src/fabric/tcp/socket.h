// Sockets: an owned descriptor, addresses, and a listener. Nothing here blocks.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace starling {

// A descriptor that is closed with its object.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct TcpAddress {
  std::string host = "127.0.0.1";  // numeric, IPv4 or IPv6
  uint16_t port = 0;               // 0: any that is free

  std::string text() const;
};

// Listens from its construction on, so that others may connect as soon as they know the address.
class TcpListener {
 public:
  // Throws Error: input_error for what is no address, run_error when the port can't be had.
  explicit TcpListener(const TcpAddress& address = {});

  // One that listens already: inherited from a launcher. The descriptor is this object's from now.
  static TcpListener adopt(int fd);

  const TcpAddress& address() const { return address_; }  // with the port that was given
  int fd() const { return socket_.fd(); }
  // The next that has connected, if there is one.
  Socket accept() const;

 private:
  TcpListener(Socket socket, TcpAddress address)
      : socket_(std::move(socket)), address_(std::move(address)) {}

  Socket socket_;
  TcpAddress address_;
};

// Begins to connect. Throws Error (input_error) for what is no address, run_error when the system
// has no sockets to give. A refusal is told by the socket itself.
Socket begin_connect(const TcpAddress& address);
// Small messages leave at once.
void set_no_delay(int fd);

}  // namespace starling
