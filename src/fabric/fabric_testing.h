// Worlds of ranks for tests: run_ranks runs the same blocking code in every rank of a world, over
// any fabric. In sim the ranks take turns by the seed; over shm and tcp each is a thread.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "fabric/shm/shm_fabric.h"
#include "fabric/sim/sim.h"
#include "fabric/tcp/tcp_fabric.h"

namespace starling {

// Sim too, which a job cannot choose, and tcp as over another network.
enum class TestedFabric { kSim, kShm, kTcp, kPacedTcp };

inline std::string name_of(TestedFabric kind) {
  switch (kind) {
    case TestedFabric::kSim:
      return "Sim";
    case TestedFabric::kShm:
      return "Shm";
    case TestedFabric::kTcp:
      return "Tcp";
    case TestedFabric::kPacedTcp:
      return "PacedTcp";
  }
  return "";
}
inline std::ostream& operator<<(std::ostream& out, TestedFabric kind) {
  return out << name_of(kind);
}

// Far enough that only a hang reaches it.
inline Instant soon(const Fabric& fabric) { return fabric.now() + std::chrono::seconds(20); }

// Threads that each run body(rank); what one throws is thrown when all have ended.
inline void run_threads(int world, const std::function<void(int rank)>& body) {
  std::exception_ptr thrown;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < world; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!thrown) thrown = std::current_exception();
        }
      });
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

inline JobToken test_token() {
  JobToken token{};
  for (size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(17 * i + 3);
  return token;
}

// Of the paced one: slow enough that bytes are on their way, fast enough for a few MB.
inline LinkOptions link_of(TestedFabric kind) {
  if (kind != TestedFabric::kPacedTcp) return {};
  return {.bits_per_second = 2'000'000'000, .delay = std::chrono::microseconds(300)};
}

inline void run_ranks(TestedFabric kind, int world, const std::function<void(Fabric& fabric)>& body,
                      uint64_t seed = 1) {
  if (kind == TestedFabric::kSim) {
    SimWorld sim({.world = world, .seed = seed});
    const auto outcome = sim.run_blocking([&](int, Fabric& fabric) { body(fabric); });
    EXPECT_TRUE(outcome.all_done()) << "seed " << seed << ": not all ranks came to an end";
  } else if (kind == TestedFabric::kShm) {
    const SharedSegment segment = ShmFabric::make_segment({.world = world});
    run_threads(world, [&](int rank) {
      ShmFabric fabric(segment, rank);
      body(fabric);
    });
  } else {
    std::vector<TcpListener> listeners(static_cast<size_t>(world));
    std::vector<TcpAddress> addresses;
    for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
    run_threads(world, [&](int rank) {
      TcpFabric fabric(
          std::move(listeners[static_cast<size_t>(rank)]),
          {.rank = rank, .addresses = addresses, .token = test_token(), .link = link_of(kind)});
      body(fabric);
    });
  }
}

// Bytes that tell from whom and which they are.
inline std::vector<std::byte> pattern(size_t length, uint64_t key) {
  std::vector<std::byte> bytes(length);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = mix64(key * 0x9E3779B97F4A7C15 + i);
    for (size_t j = i; j < std::min(length, i + 8); ++j) {
      bytes[j] = static_cast<std::byte>(word >> (8 * (j - i)));
    }
  }
  return bytes;
}

}  // namespace starling
