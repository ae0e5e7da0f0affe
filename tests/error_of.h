// For tests of what is refused: catches the Error that must come, and fails the test when none
// does.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "starling/error.h"

namespace starling {

// The Error that `work` throws. Every Error says what to do.
template <typename Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_FALSE(error.hint().empty()) << error.what();
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return run_error("no Error was thrown", "throw one");
}

// "message | hint" of the Error with which `work` refuses what a user gave.
template <typename Work>
std::string refusal(const Work& work) {
  const Error error = error_of(work);
  EXPECT_EQ(error.cause(), Error::Cause::kInput) << error.what();
  return std::string(error.what()) + " | " + error.hint();
}

}  // namespace starling
