// Frames and results: what is written is read, and what is not a frame is refused.
#include "fabric/frame.h"

#include <gtest/gtest.h>

#include "fabric/tcp/hello.h"

namespace starling {
namespace {

TEST(Frame, IsReadAsItWasWritten) {
  const FrameHeader header{
      .kind = FrameKind::kInPlace, .length = 0x0123456789ABCDEF, .tag = ~uint64_t{0}, .view = 7};
  std::array<std::byte, kFrameHeaderBytes> bytes;
  write_frame_header(header, bytes);
  EXPECT_EQ(parse_frame_header(bytes, UINT64_MAX), header);
}

TEST(Frame, RefusesWhatIsNone) {
  std::array<std::byte, kFrameHeaderBytes> good;
  write_frame_header({.length = 100}, good);
  EXPECT_TRUE(parse_frame_header(good, 100));
  EXPECT_FALSE(parse_frame_header(good, 99)) << "longer than allowed";
  // The magic number and the kind.
  for (size_t i = 0; i < 8; ++i) {
    auto bad = good;
    bad[i] ^= std::byte{0x40};
    EXPECT_FALSE(parse_frame_header(bad, UINT64_MAX)) << i;
  }
}

Hello some_hello() {
  Hello hello{.version = kProtocolVersion,
              .verdict = HelloVerdict::kView,
              .rank = 3,
              .world = 4,
              .connection = 1,
              .connections = 2,
              .view = 0x1122334455667788};
  for (size_t i = 0; i < hello.token.size(); ++i) hello.token[i] = static_cast<std::byte>(200 + i);
  return hello;
}

TEST(Hello, IsReadAsItWasWritten) {
  std::array<std::byte, kHelloBytes> bytes;
  write_hello(some_hello(), bytes);
  EXPECT_EQ(parse_hello(bytes), some_hello());
}

TEST(Hello, RefusesNumbersThatCannotBe) {
  const auto parses = [](const Hello& hello) {
    std::array<std::byte, kHelloBytes> bytes;
    write_hello(hello, bytes);
    return parse_hello(bytes).has_value();
  };
  Hello hello = some_hello();
  hello.rank = hello.world;
  EXPECT_FALSE(parses(hello));
  hello = some_hello();
  hello.connection = hello.connections;
  EXPECT_FALSE(parses(hello));
  hello = some_hello();
  hello.connections = kConnectionsMost + 1;
  EXPECT_FALSE(parses(hello));
  hello = some_hello();
  hello.world = kWorldMost + 1;
  EXPECT_FALSE(parses(hello));
  hello.version = kProtocolVersion + 1;
  EXPECT_TRUE(parses(hello)) << "another version is told, not ignored";
  std::array<std::byte, kHelloBytes> bytes{};
  EXPECT_FALSE(parse_hello(bytes));
}

TEST(Hello, TokensDifferInAnyByte) {
  const JobToken token = some_hello().token;
  EXPECT_TRUE(equal_tokens(token, token));
  for (size_t i = 0; i < token.size(); ++i) {
    JobToken other = token;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(equal_tokens(token, other));
  }
}

}  // namespace
}  // namespace starling
