#include "cluster/control.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <type_traits>

#include "starling/error.h"

namespace starling {
namespace {

// Values one after another; a list goes behind its length.
class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto* const at = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), at, at + sizeof(T));
  }
  template <typename List>
  void put_list(const List& list) {
    put(static_cast<uint32_t>(list.size()));
    for (const auto& value : list) put(value);
  }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what Writer wrote; good() is false when there was less.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  void get(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    good_ = good_ && bytes_.size() >= sizeof(T);
    if (!good_) return;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
  }
  template <typename List>
  void get_list(List& list) {
    uint32_t count = 0;
    get(count);
    good_ = good_ && count <= bytes_.size();
    if (!good_) return;
    list.resize(count);
    for (auto& value : list) get(value);
  }
  bool good() const { return good_; }

 private:
  std::span<const std::byte> bytes_;
  bool good_ = true;
};

// The fields in their order, for both directions.
template <typename Visit, typename VisitList, typename Message>
void visit_fields(Message& m, Visit visit, VisitList visit_list) {
  visit(m.kind);
  visit(m.progress);
  visit(m.step);
  visit(m.steps);
  visit(m.time);
  visit(m.commit.kind);
  visit(m.commit.view);
  visit(m.commit.from);
  visit(m.commit.step);
  visit(m.commit.finite);
  visit(m.commit.redo);
  visit(m.commit.has_state);
  visit(m.commit.progress);
  visit(m.commit.reduced_in);
  visit_list(m.commit.members);
  visit_list(m.commit.newcomers);
  visit(m.commit.donor);
  visit_list(m.news);
  visit_list(m.losses);
  visit_list(m.ports);
  visit_list(m.servers);
  visit_list(m.words);
}

}  // namespace

std::pair<Socket, Socket> control_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw run_error(fmt::format("no socket to a worker: {}", std::strerror(errno)),
                    "raise the limit of open files (ulimit -n), or use fewer workers");
  return {Socket(ends[0]), Socket(ends[1])};
}

bool send_control(int socket, const ControlMessage& message) {
  Writer writer;
  visit_fields(
      message, [&](const auto& value) { writer.put(value); },
      [&](const auto& list) { writer.put_list(list); });
  if (writer.bytes().size() > kControlBytesMost)  // it would be cut off, or wait for ever
    throw run_error(fmt::format("a message of {} bytes between launcher and worker, and {} is the "
                                "most",
                                writer.bytes().size(), kControlBytesMost),
                    "use fewer workers");
  iovec part{writer.bytes().data(), writer.bytes().size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  if (message.segment) {
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    cmsghdr* const descriptor = CMSG_FIRSTHDR(&header);
    descriptor->cmsg_level = SOL_SOCKET;
    descriptor->cmsg_type = SCM_RIGHTS;
    descriptor->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = message.segment.fd();
    std::memcpy(CMSG_DATA(descriptor), &fd, sizeof fd);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

std::optional<ControlMessage> receive_control(int socket, bool& ended) {
  std::array<std::byte, kControlBytesMost> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> room{};
  header.msg_control = room.data();
  header.msg_controllen = room.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  ended = got == 0 || (got < 0 && errno != EAGAIN);
  if (got <= 0) return std::nullopt;
  ControlMessage message;
  if (const cmsghdr* const descriptor = CMSG_FIRSTHDR(&header);
      descriptor != nullptr && descriptor->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(descriptor), sizeof fd);
    message.segment = Socket(fd);
  }
  Reader reader({bytes.data(), static_cast<size_t>(got)});
  visit_fields(
      message, [&](auto& value) { reader.get(value); }, [&](auto& list) { reader.get_list(list); });
  if (!reader.good()) {  // the two ends are of one program: this can't be
    ended = true;
    return std::nullopt;
  }
  return message;
}

}  // namespace starling
