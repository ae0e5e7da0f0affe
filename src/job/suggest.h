// Suggestions: the known word that a mistyped one is nearest to. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace starling {

// Insertions, removals, replacements and swaps of neighbours that turn one word into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `word`, the first of equals; nothing when all are too far to be meant.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

}  // namespace starling
