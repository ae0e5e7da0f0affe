// Words of a list on the command line. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace starling {

// "2,4,8" at ',' as {"2", "4", "8"}; an empty text is one empty word.
inline std::vector<std::string> split_words(const std::string& text, char separator) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace starling
