// say(): tells people something. A run does not end because nobody listens: a pipe whose reader is
// gone, a full disk. (fmt::print throws then.)
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <utility>

namespace starling {

template <typename... Values>
void say(std::FILE* to, fmt::format_string<Values...> format, Values&&... values) {
  const std::string text = fmt::format(format, std::forward<Values>(values)...);
  std::fwrite(text.data(), 1, text.size(), to);
}

}  // namespace starling
