#include "train/safetensors_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "starling/error.h"

namespace starling {
namespace {

// The deepest nesting of brackets outside strings. Known before parsing, so that a file of nothing
// but brackets costs no memory.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

nlohmann::json parse_strict_json(std::string_view text, int max_depth, std::string_view where,
                                 const std::string& hint) {
  using Event = nlohmann::json::parse_event_t;
  if (depth_of(text) > max_depth) {
    throw input_error(fmt::format("{}: JSON nested deeper than {} levels", where, max_depth), hint);
  }
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  std::string duplicate;
  bool found_duplicate = false;
  const auto check_keys = [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get_ref<const std::string&>()).second) {
      if (!found_duplicate) duplicate = value.get_ref<const std::string&>();
      found_duplicate = true;
    }
    return true;
  };
  nlohmann::json parsed =
      nlohmann::json::parse(text.begin(), text.end(), check_keys, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) {
    throw input_error(fmt::format("{}: not well-formed JSON", where), hint);
  }
  if (found_duplicate) {
    throw input_error(fmt::format("{}: {} is there twice", where, printable(duplicate)), hint);
  }
  return parsed;
}

std::string printable(std::string_view text) {
  constexpr size_t kShown = 80;  // characters: enough for any sensible name
  std::string shown = nlohmann::json(std::string(text.substr(0, kShown)))
                          .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() > kShown ? shown + "…" : shown;
}

}  // namespace starling
