// What the conductor and the members say to one another, as words of 64 bits for a message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "param/conductor.h"

namespace starling {

std::vector<uint64_t> to_words(const Stretch& stretch);
std::vector<uint64_t> to_words(const Push& push);
std::vector<uint64_t> to_words(std::span<const Order> orders);

// Nothing when the words make no sense.
std::optional<Stretch> stretch_of(std::span<const uint64_t> words);
std::optional<Push> push_of(std::span<const uint64_t> words);
std::optional<std::vector<Order>> orders_of(std::span<const uint64_t> words);

}  // namespace starling
