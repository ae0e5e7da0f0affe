// JSON from a file that nobody vouches for: a bounded depth, no key twice in an object, and no
// exception from the parser. What the values mean is for the caller to check.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace starling {

// Parses `text`; throws input Error "WHERE: what is wrong" with `hint`.
nlohmann::json parse_strict_json(std::string_view text, int max_depth, std::string_view where,
                                 const std::string& hint);

// A string of the file as it may be shown to a person: quoted, escaped and cut short.
std::string printable(std::string_view text);

}  // namespace starling
