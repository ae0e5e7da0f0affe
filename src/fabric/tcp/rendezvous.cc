#include "fabric/tcp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/lost_worker.h"
#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

// Connections that have not said who they are: while there are so many, others wait, and those that
// have had this time to say it are closed. A worker says it at once.
constexpr size_t kStrangersMost = 256;
constexpr std::chrono::seconds kStrangersTime{1};
// For an interrupt, and between two tries to reach one who is not in the same view yet.
constexpr std::chrono::milliseconds kLookEvery{5};

Hello hello_of(const RendezvousOptions& options, uint32_t connection) {
  return {.version = kProtocolVersion,
          .token = options.token,
          .rank = static_cast<uint32_t>(options.rank),
          .world = static_cast<uint32_t>(options.addresses.size()),
          .connection = connection,
          .connections = static_cast<uint32_t>(options.connections_per_peer),
          .view = options.view};
}

class Meeting {
 public:
  Meeting(const TcpListener& listener, const RendezvousOptions& options)
      : listener_(listener),
        options_(options),
        world_(options.addresses.size()),
        per_peer_(static_cast<size_t>(options.connections_per_peer)),
        end_(begin_ + options.deadline),
        found_(world_) {
    if (options.rank < 0 || static_cast<size_t>(options.rank) >= world_ || world_ > kWorldMost ||
        options.connections_per_peer < 1 ||
        options.connections_per_peer > static_cast<int>(kConnectionsMost)) {
      throw std::logic_error("a rendezvous needs a rank of its world, and 1 to 64 connections");
    }
    for (auto& sockets : found_) sockets.resize(per_peer_);
    found_[rank()].clear();
  }

  std::vector<std::vector<Socket>> run() {
    missing_ = (world_ - 1) * per_peer_;
    for (size_t peer = 0; peer < rank(); ++peer) {
      for (uint32_t number = 0; number < per_peer_; ++number) {
        Guest guest;
        guest.socket = begin_connect(options_.addresses[peer]);
        guest.peer = static_cast<int>(peer);
        guest.connection = number;
        write_hello(own_hello(number), guest.out);
        guests_.push_back(std::move(guest));
      }
    }
    while (missing_ > 0) wait_and_serve();
    return std::move(found_);
  }

 private:
  // A connection on its way to become one of the world's: hello out, hello in, in either order.
  struct Guest {
    Socket socket;
    int peer = -1;  // whom we connected to; −1 for one that came
    uint32_t connection = 0;
    std::array<std::byte, kHelloBytes> out{}, in{};
    size_t sent = 0, got = 0;
    bool answered = false;  // of one that came: `out` is our answer
    std::optional<Hello> hello;
    bool over = false;
    Clock::time_point came = Clock::now();

    bool is_stranger() const { return peer < 0 && !hello; }
    bool wants_to_write() const { return (peer >= 0 || answered) && sent < kHelloBytes; }
  };

  size_t rank() const { return static_cast<size_t>(options_.rank); }

  Hello own_hello(uint32_t connection) const { return hello_of(options_, connection); }

  void wait_and_serve() {
    const bool full = is_full();
    std::vector<pollfd> polled = {
        {.fd = full ? -1 : listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      polled.push_back({.fd = guest.socket.fd(),
                        .events = static_cast<short>(guest.wants_to_write() ? POLLOUT : POLLIN),
                        .revents = 0});
    }
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now()).count();
    const bool interrupted = options_.interrupt != nullptr && options_.interrupt->load();
    if (left <= 0 || interrupted) throw_missing(interrupted);
    left =
        std::min<long>(left, full || options_.interrupt != nullptr ? kLookEvery.count() : INT_MAX);
    const std::optional<size_t> ended = ended_;
    if (ended) left = 0;
    if (poll(polled.data(), polled.size(), static_cast<int>(left)) < 0) return;  // interrupted
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (polled[i + 1].revents != 0) serve(guests_[i]);
    }
    std::erase_if(guests_, [](const Guest& guest) { return guest.over; });
    if (ended) give_up_if_ended(*ended);
    if (polled[0].revents != 0) accept_all();
  }

  // Who has come and waited to be let in has mostly said hello already.
  void accept_all() {
    while (!is_full()) {
      Guest guest;
      guest.socket = listener_.accept();
      if (!guest.socket) return;
      serve(guest);
      if (guest.wants_to_write()) serve(guest);
      if (!guest.over) guests_.push_back(std::move(guest));
    }
  }

  // Whether there are as many strangers as there may be, without those whose time is up.
  bool is_full() {
    const auto strangers = std::count_if(guests_.begin(), guests_.end(),
                                         [](const Guest& guest) { return guest.is_stranger(); });
    if (static_cast<size_t>(strangers) < kStrangersMost) return false;
    const Clock::time_point now = Clock::now();
    return std::erase_if(guests_, [&](const Guest& guest) {
             return guest.is_stranger() && now - guest.came >= kStrangersTime;
           }) == 0;
  }

  void serve(Guest& guest) {
    if (guest.wants_to_write()) {
      const ssize_t wrote = ::send(guest.socket.fd(), &guest.out[guest.sent],
                                   kHelloBytes - guest.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (wrote < 0 && errno != EAGAIN && errno != EINTR) return fail(guest, errno);
      guest.sent += static_cast<size_t>(std::max<ssize_t>(wrote, 0));
      if (guest.sent < kHelloBytes) return;
      if (guest.answered) return conclude(guest);
      return;
    }
    const ssize_t got =
        recv(guest.socket.fd(), &guest.in[guest.got], kHelloBytes - guest.got, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) return fail(guest, got < 0 ? errno : 0);
    guest.got += static_cast<size_t>(got);
    if (guest.got == kHelloBytes) hear(guest);
  }

  // The other's hello is complete.
  void hear(Guest& guest) {
    guest.hello = parse_hello(guest.in);
    if (!guest.hello || !equal_tokens(guest.hello->token, options_.token)) {
      if (guest.peer >= 0) {
        throw run_error(
            fmt::format("what listens at {} is not worker {} of this job",
                        options_.addresses[static_cast<size_t>(guest.peer)].text(), guest.peer),
            "another program has taken the port: start the job again");
      }
      guest.over = true;  // a stranger gets no answer
      return;
    }
    if (guest.peer >= 0) {
      if (guest.hello->verdict == HelloVerdict::kView && options_.interrupt != nullptr)
        return try_again(guest);
      if (guest.hello->verdict != HelloVerdict::kWelcome) throw_refused(guest);
      return conclude(guest);
    }
    if (guest.hello->verdict == HelloVerdict::kEnded) return hear_of_end(guest);
    Hello answer = own_hello(guest.hello->connection);
    answer.verdict = judge(*guest.hello);
    write_hello(answer, guest.out);
    guest.answered = true;
  }

  // Perhaps it has met this rank all the same, and its answer is there to be read.
  void hear_of_end(Guest& guest) {
    guest.over = true;
    const Hello& hello = *guest.hello;
    const bool is_meant = hello.version == kProtocolVersion && hello.view == options_.view &&
                          hello.world == world_ && hello.rank != rank();
    if (is_meant) ended_ = hello.rank;
  }

  void give_up_if_ended(size_t peer) {
    ended_.reset();
    if (has_met(peer)) return;
    throw LostWorker(fmt::format("worker {} has ended before it met worker {}", peer, rank()),
                     "look for what it says; all workers of a job make the same calls",
                     static_cast<int>(peer));
  }

  bool has_met(size_t peer) const {
    return std::all_of(found_[peer].begin(), found_[peer].end(),
                       [](const Socket& socket) { return bool(socket); });
  }

  HelloVerdict judge(const Hello& hello) const {
    if (hello.version != kProtocolVersion) return HelloVerdict::kVersion;
    if (hello.view != options_.view) return HelloVerdict::kView;
    if (hello.world != world_ || hello.connections != per_peer_) return HelloVerdict::kWorld;
    if (hello.rank <= rank() || found_[hello.rank][hello.connection]) return HelloVerdict::kRank;
    return HelloVerdict::kWelcome;
  }

  // Both have said hello.
  void conclude(Guest& guest) {
    guest.over = true;
    const Hello& hello = *guest.hello;
    if (guest.peer < 0 && judge(hello) != HelloVerdict::kWelcome) return;
    const size_t peer = guest.peer >= 0 ? static_cast<size_t>(guest.peer) : hello.rank;
    found_[peer][guest.peer >= 0 ? guest.connection : hello.connection] = std::move(guest.socket);
    --missing_;
  }

  // One that is in another view still, or has just left it.
  void try_again(Guest& guest) {
    std::this_thread::sleep_for(kLookEvery);
    guest.socket = begin_connect(options_.addresses[static_cast<size_t>(guest.peer)]);
    guest.sent = guest.got = 0;
    guest.hello.reset();
    guest.over = false;
  }

  void fail(Guest& guest, int error) {
    guest.over = true;
    if (guest.peer < 0) return;
    if (options_.interrupt != nullptr) return try_again(guest);
    const std::string at = options_.addresses[static_cast<size_t>(guest.peer)].text();
    if (error == 0 || error == ECONNRESET || error == EPIPE) {
      throw LostWorker(
          fmt::format("worker {} at {} refused worker {}: it ended, or is of another job",
                      guest.peer, at, rank()),
          "look for what it says; the workers of a job are started by one launcher");
    }
    throw LostWorker(
        fmt::format("worker {} at {} can't be reached: {}", guest.peer, at, std::strerror(error)),
        "look for what it says; it may have ended before the others came");
  }

  [[noreturn]] void throw_refused(const Guest& guest) const {
    throw run_error(fmt::format("worker {} refused worker {}: {}", guest.peer, rank(),
                                describe_verdict(guest.hello->verdict)),
                    "start all workers of a job with the same program and settings");
  }

  [[noreturn]] void throw_missing(bool interrupted) const {
    std::vector<size_t> missing;
    for (size_t peer = 0; peer < world_; ++peer) {
      if (!has_met(peer)) missing.push_back(peer);
    }
    const auto waited = std::chrono::floor<std::chrono::milliseconds>(Clock::now() - begin_);
    throw LostWorker(
        fmt::format("worker {} waited {} ms for the others{}; missing: {}", rank(), waited.count(),
                    interrupted ? ", until a new view began" : "", fmt::join(missing, ", ")),
        "look for what those workers say");
  }

  const TcpListener& listener_;
  const RendezvousOptions& options_;
  const size_t world_, per_peer_;
  const Clock::time_point begin_ = Clock::now(), end_;
  std::vector<Guest> guests_;
  std::vector<std::vector<Socket>> found_;
  size_t missing_ = 0;
  std::optional<size_t> ended_;  // a rank that is said to have ended, since the last look at guests
};

}  // namespace

std::vector<std::vector<Socket>> rendezvous(const TcpListener& listener,
                                            const RendezvousOptions& options) {
  return Meeting(listener, options).run();
}

void tell_of_end(const RendezvousOptions& of_ended, const TcpAddress& listener) {
  const Socket socket = begin_connect(listener);
  pollfd connected{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  constexpr int kWaitMs = 100;
  if (poll(&connected, 1, kWaitMs) <= 0) return;
  Hello hello = hello_of(of_ended, 0);
  hello.verdict = HelloVerdict::kEnded;
  std::array<std::byte, kHelloBytes> bytes;
  write_hello(hello, bytes);
  static_cast<void>(::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace starling
