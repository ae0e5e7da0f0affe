#include "base/words.h"

#include <gtest/gtest.h>

namespace starling {
namespace {

TEST(ShellWord, IsQuotedIfAShellWouldChangeIt) {
  for (const char* plain : {"train", "runs/a-b_c.toml", "--set", "training.epochs=5", "1,2:3"})
    EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("name={x=\"y\"}"), "'name={x=\"y\"}'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("~/$HOME`x`"), "'~/$HOME`x`'");
}

}  // namespace
}  // namespace starling
