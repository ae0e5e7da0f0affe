#include "fabric/tcp/hello.h"

#include <algorithm>
#include <cstring>

#include "fabric/frame.h"

namespace starling {
namespace {

constexpr char kHelloMagic[8] = {'S', 'T', 'A', 'R', 'L', 'I', 'N', 'G'};

}  // namespace

bool equal_tokens(const JobToken& a, const JobToken& b) {
  std::byte differs{0};
  for (size_t i = 0; i < a.size(); ++i) differs |= a[i] ^ b[i];
  return differs == std::byte{0};
}

std::string describe_verdict(HelloVerdict verdict) {
  switch (verdict) {
    case HelloVerdict::kWelcome:
      return "welcome";
    case HelloVerdict::kVersion:
      return "it speaks another version of the protocol";
    case HelloVerdict::kWorld:
      return "it belongs to a world of another size";
    case HelloVerdict::kRank:
      return "its rank is taken";
    case HelloVerdict::kView:
      return "it is in another view";
    case HelloVerdict::kEnded:
      return "it has ended";
  }
  return "for a reason that is not known here";
}

void write_hello(const Hello& hello, std::span<std::byte, kHelloBytes> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  std::memcpy(&out[0], kHelloMagic, sizeof(kHelloMagic));
  write_little_endian(&out[8], hello.version, 4);
  write_little_endian(&out[12], static_cast<uint32_t>(hello.verdict), 4);
  std::copy(hello.token.begin(), hello.token.end(), &out[16]);
  write_little_endian(&out[32], hello.rank, 4);
  write_little_endian(&out[36], hello.world, 4);
  write_little_endian(&out[40], hello.connection, 4);
  write_little_endian(&out[44], hello.connections, 4);
  write_little_endian(&out[48], hello.view, 8);
}

std::optional<Hello> parse_hello(std::span<const std::byte, kHelloBytes> bytes) {
  if (std::memcmp(bytes.data(), kHelloMagic, sizeof(kHelloMagic)) != 0) return std::nullopt;
  const auto number = [&](size_t at) {
    return static_cast<uint32_t>(read_little_endian(&bytes[at], 4));
  };
  Hello hello{.version = number(8),
              .verdict = static_cast<HelloVerdict>(number(12)),
              .rank = number(32),
              .world = number(36),
              .connection = number(40),
              .connections = number(44),
              .view = read_little_endian(&bytes[48], 8)};
  std::copy_n(&bytes[16], hello.token.size(), hello.token.begin());
  if (hello.version != kProtocolVersion) return hello;  // the rest may mean something else
  const bool sane = hello.verdict <= HelloVerdict::kEnded && hello.world <= kWorldMost &&
                    hello.rank < hello.world && hello.connections <= kConnectionsMost &&
                    hello.connection < hello.connections;
  return sane ? std::optional(hello) : std::nullopt;
}

}  // namespace starling
