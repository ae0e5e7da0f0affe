// Hello: the first thing that each side of a connection says: what it speaks, for which job, who it
// is. A connection that does not know the job's token is closed without an answer. Pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace starling {

// Secret of a job: 128 random bits, which the launcher gives to its workers.
using JobToken = std::array<std::byte, 16>;

// Whether they are equal, in a time that does not tell where they differ.
bool equal_tokens(const JobToken& a, const JobToken& b);

// What is thought of the other's hello.
enum class HelloVerdict : uint32_t {
  kWelcome = 0,
  kVersion = 1,
  kWorld = 2,
  kRank = 3,
  kView = 4,
  kEnded = 5,  // no answer: whoever started the rank says that it has ended (rendezvous.h)
};
// In words that follow "peer 3 refused this worker: ".
std::string describe_verdict(HelloVerdict verdict);

struct Hello {
  uint32_t version = 0;
  HelloVerdict verdict = HelloVerdict::kWelcome;  // only in an answer
  JobToken token{};
  uint32_t rank = 0;
  uint32_t world = 0;
  uint32_t connection = 0;   // which of the connections between the two …
  uint32_t connections = 0;  // … of how many
  uint64_t view = 0;

  friend bool operator==(const Hello&, const Hello&) = default;
};

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kHelloBytes = 64;
inline constexpr uint32_t kWorldMost = 1 << 16;
inline constexpr uint32_t kConnectionsMost = 64;

void write_hello(const Hello& hello, std::span<std::byte, kHelloBytes> out);
// Nothing when these bytes are no hello, or its numbers can't be. Another version is a hello.
std::optional<Hello> parse_hello(std::span<const std::byte, kHelloBytes> bytes);

}  // namespace starling
