// A program for tools/check_link: one rank of a world over tcp, which may lie in a network
// namespace of its own, or see another network than it has. It repeats an exchange, and rank 0 says
// what each took, in seconds, a line each.
//
//   link_probe RANK PORT EXCHANGE BYTES REPEATS RATE DELAY HOST...
//
// Rank i listens at the i-th HOST, at PORT + i; RATE and DELAY are as for --link-rate, or "". The
// exchanges: `transfer`: rank 0 sends to rank 1, and waits for a word from it; `gather`: all send
// to rank 0; `all_reduce`: each has a vector of so many bytes, which are summed for all.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <stdexcept>

#include "collective/collectives.h"
#include "fabric/tcp/tcp_fabric.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr std::chrono::seconds kTimeout{120};
constexpr Tag kData = 1, kWord = 2;

void require(const Status& status) {
  if (!status) throw std::runtime_error(status.failure().message);
}

int number(const char* text) {
  int value = 0;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end || text == end)
    throw std::runtime_error(fmt::format("\"{}\" is no number", text));
  return value;
}

class Probe {
 public:
  Probe(Fabric& fabric, size_t bytes)
      : fabric_(fabric),
        all_(fabric, std::make_shared<Placement>(Placement::even(ranks(), ranks())),
             {.timeout = kTimeout}),
        own_(bytes / sizeof(float), 1.0f),
        out_(own_.size() * ranks()) {}

  void meet() { require(all_.wait(all_.barrier())); }

  void exchange(const std::string& name) {
    const std::span<std::byte> own = std::as_writable_bytes(std::span(own_));
    if (name == "transfer") {
      transfer(own);
    } else if (name == "gather") {
      std::vector<size_t> cuts;
      for (size_t rank = 0; rank <= ranks(); ++rank) cuts.push_back(rank * own.size());
      require(all_.wait(all_.gather(0, own, std::as_writable_bytes(std::span(out_)), cuts)));
    } else if (name == "all_reduce") {
      const float* const partial = own_.data();
      require(all_.wait(all_.all_reduce({&partial, 1}, std::span(out_).first(own_.size()))));
    } else {
      throw std::runtime_error("there is no exchange " + name);
    }
  }

 private:
  size_t ranks() const { return static_cast<size_t>(fabric_.world()); }

  void transfer(std::span<std::byte> bytes) {
    const Instant deadline = fabric_.now() + kTimeout;
    std::array<std::byte, 4> word{};
    if (fabric_.rank() == 0) {
      require(send(fabric_, 1, kData, bytes, deadline));
      require(receive(fabric_, 1, kWord, word, deadline));
    } else if (fabric_.rank() == 1) {
      require(receive(fabric_, 0, kData, bytes, deadline));
      require(send(fabric_, 0, kWord, word, deadline));
    }
  }

  Fabric& fabric_;
  Collectives all_;
  std::vector<float> own_, out_;
};

void run(std::span<char*> words) {
  if (words.size() < 9) throw std::runtime_error("see its source for how it is called");
  const int rank = number(words[0]), port = number(words[1]), repeats = number(words[4]);
  TcpOptions options{.rank = rank, .link = parse_link(words[5], words[6])};
  for (size_t i = 7; i < words.size(); ++i) {
    const size_t at = static_cast<size_t>(port) + i - 7;
    options.addresses.push_back({words[i], static_cast<uint16_t>(at)});
  }
  TcpListener listener(options.addresses.at(static_cast<size_t>(rank)));
  fmt::print("listens\n");
  std::fflush(stdout);
  TcpFabric fabric(std::move(listener), options);
  Probe probe(fabric, static_cast<size_t>(number(words[3])));
  for (int i = 0; i <= repeats; ++i) {
    // From before they meet: after it others may have begun while this rank waited for a core.
    const Instant begin = fabric.now();
    probe.meet();
    probe.exchange(words[2]);
    const std::chrono::duration<double> took = fabric.now() - begin;
    // The first is for buffers and windows to grow.
    if (rank == 0 && i > 0) fmt::print("{}\n", took.count());
  }
  probe.meet();  // nobody leaves while others are at it
}

}  // namespace
}  // namespace starling

int main(int count, char** words) {
  try {
    starling::run(std::span(words + 1, static_cast<size_t>(count - 1)));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
