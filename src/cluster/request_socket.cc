#include "cluster/request_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kSocketName = "control";
constexpr size_t kGuestsMost = 16;
constexpr size_t kRequestBytesMost = 256, kAnswerBytesMost = 128 << 10;
constexpr int kAnswerMs = 10'000, kTriesMost = 1000;

Socket make_socket() {
  return Socket(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// The name in the folder, however long the folder's path is: sockets' names have room for 107
// characters.
struct Name {
  Socket folder;
  sockaddr_un address{};

  explicit Name(const std::filesystem::path& path)
      : folder(open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    address.sun_family = AF_UNIX;
    const std::string text = fmt::format("/proc/self/fd/{}/{}", folder.fd(), kSocketName);
    text.copy(address.sun_path, sizeof address.sun_path - 1);
  }
  const sockaddr* at() const { return reinterpret_cast<const sockaddr*>(&address); }
};

bool is_own(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

// Whatever is there: one packet, or nothing.
std::optional<std::string> receive_text(int socket, size_t bytes_most) {
  std::string text(bytes_most, '\0');
  const ssize_t got = ::recv(socket, text.data(), text.size(), MSG_DONTWAIT);
  if (got <= 0) return std::nullopt;
  text.resize(static_cast<size_t>(got));
  return text;
}

bool send_text(int socket, const std::string& text) {
  return ::send(socket, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

}  // namespace

RequestSocket::RequestSocket(const std::filesystem::path& folder)
    : folder_(folder), events_(epoll_create1(EPOLL_CLOEXEC)), listener_(make_socket()) {
  const Name name(folder);
  const auto refuse = [&](const std::string& why) {
    return run_error(
        fmt::format("{} can't be listened at: {}", (folder / kSocketName).string(), why),
        "a run folder on a local disk can have such a socket");
  };
  if (!events_ || !listener_ || !name.folder) throw refuse(std::strerror(errno));
  bool bound = bind(listener_.fd(), name.at(), sizeof name.address) == 0;
  if (!bound && errno == EADDRINUSE) {
    if (const Socket other = make_socket();
        connect(other.fd(), name.at(), sizeof name.address) == 0 || errno == EAGAIN) {
      throw refuse("another run has it");
    }
    struct stat there {};
    const bool is_left = lstat(name.address.sun_path, &there) == 0 && S_ISSOCK(there.st_mode);
    if (!is_left) throw refuse("a file of that name is there, and stays");
    unlink(name.address.sun_path);
    bound = bind(listener_.fd(), name.at(), sizeof name.address) == 0;
  }
  if (!bound || listen(listener_.fd(), kGuestsMost) != 0) throw refuse(std::strerror(errno));
  chmod(name.address.sun_path, S_IRUSR | S_IWUSR);
  watch(listener_.fd());
}

RequestSocket::~RequestSocket() { unlink(Name(folder_).address.sun_path); }

void RequestSocket::watch(int socket) const {
  epoll_event event{.events = EPOLLIN | EPOLLRDHUP, .data = {.fd = socket}};
  epoll_ctl(events_.fd(), EPOLL_CTL_ADD, socket, &event);
}

void RequestSocket::accept_all() {
  while (true) {
    Socket guest(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!guest) return;
    if (!is_own(guest.fd())) continue;
    if (guests_.size() == kGuestsMost) guests_.pop_front();
    watch(guest.fd());
    guests_.push_back(std::move(guest));
  }
}

void RequestSocket::serve(FunctionRef<std::string(const std::string&)> answer) {
  std::array<epoll_event, kGuestsMost + 1> events;
  const int count = epoll_wait(events_.fd(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int socket = events[static_cast<size_t>(i)].data.fd;
    if (socket == listener_.fd()) {
      accept_all();
      continue;
    }
    if (const auto request = receive_text(socket, kRequestBytesMost))
      send_text(socket, answer(*request));
    guests_.remove_if([&](const Socket& guest) { return guest.fd() == socket; });
  }
}

std::optional<std::string> ask_run(const std::filesystem::path& folder,
                                   const std::string& request) {
  // A run that ends hangs up on who is just asking: then it is looked for again.
  for (int tries = 0; tries < kTriesMost; ++tries) {
    const Name name(folder);
    const Socket socket = make_socket();
    if (!name.folder || connect(socket.fd(), name.at(), sizeof name.address) != 0) {
      if (errno == EACCES || errno == EPERM)
        throw input_error(fmt::format("the run in {} is another user's", folder.string()),
                          "ask as that user, or as root");
      if (errno != EAGAIN) return std::nullopt;
    }
    if (!send_text(socket.fd(), request)) continue;
    pollfd polled{socket.fd(), POLLIN, 0};
    if (poll(&polled, 1, kAnswerMs) < 1) break;
    if (auto text = receive_text(socket.fd(), kAnswerBytesMost)) return text;
  }
  throw run_error(fmt::format("the run in {} gives no answer", folder.string()),
                  "its launcher may be stopped (see `ps`)");
}

}  // namespace starling
