// JSON, by nlohmann's library. Its parser and its writer are compiled once, in json.cc, not in
// every file that uses them: they take seconds.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace starling {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;  // objects keep the order in which they were filled

// A discarded value (is_discarded()) when the text is no JSON.
Json parse_json(std::string_view text);
// On one line, or over several with an indent. What is no UTF-8 is replaced.
std::string to_text(const Json& json, int indent = -1);
std::string to_text(const OrderedJson& json, int indent = -1);

template <typename T>
OrderedJson or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson();
}

}  // namespace starling
