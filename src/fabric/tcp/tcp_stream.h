// TcpStream: the bytes of one connection. It reads and writes only when the system has said that it
// may, and remembers until it is told otherwise (edges of epoll). Short reads go through a buffer
// of its own, so that a small message costs one call; long ones straight to their place.
#pragma once

#include <memory>
#include <string>

#include "fabric/stream_fabric.h"
#include "fabric/tcp/socket.h"

namespace starling {

class TcpStream final : public ByteStream {
 public:
  explicit TcpStream(Socket socket);
  ~TcpStream() override;

  ptrdiff_t write(std::span<const std::byte> head, std::span<const std::byte> body) override;
  ptrdiff_t read(std::span<std::byte> into) override;
  bool ended() const override { return ended_; }
  bool ended_in_order() const override { return in_order_; }
  void hang_up() override;
  std::string why_lost() const override { return why_lost_; }

  int fd() const { return socket_.fd(); }
  // What epoll says.
  void note_events(uint32_t events);

 private:
  ptrdiff_t receive(std::span<std::byte> into);
  ptrdiff_t lost(int error);

  Socket socket_;
  bool readable_ = true;
  bool writable_ = true;
  bool ended_ = false;
  bool in_order_ = false;
  std::string why_lost_ = "closed the connection";
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is in the buffer
};

}  // namespace starling
