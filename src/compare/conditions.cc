#include "compare/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/words.h"
#include "fabric/paced/link_options.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kNone = "none";
constexpr uint64_t kWorkersMax = 1024;
constexpr double kSlowMax = 1e6;

uint64_t parse_workers(const std::string& text) {
  uint64_t workers = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, workers);
  if (error == std::errc() && rest == end && workers >= 2 && workers <= kWorkersMax) return workers;
  throw input_error(fmt::format("--workers: \"{}\" is no number of workers to compare", text),
                    "give numbers from 2 to 1024, for instance 2,4,8; one worker is the strategy "
                    "single");
}

double parse_slow(const std::string& text) {
  if (text == kNone) return 1;
  double factor = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, factor);
  if (error == std::errc() && end - rest == 1 && *rest == 'x' && factor > 1 && factor <= kSlowMax)
    return factor;
  throw input_error(fmt::format("--slow-worker: \"{}\" does not say how slow", text),
                    "write how many times as long it takes, for instance 4x; or none,4x for both");
}

// Parsed to be checked: the job takes it as it is written.
std::string checked_rate(const std::string& text) {
  if (text == kNone) return "";
  if (text.empty())
    throw input_error("--link-rate: there is nothing between two commas", "write none,100mbit");
  parse_link(text, "");
  return text;
}

std::string checked_delay(const std::string& text) {
  if (text == kNone) return "";
  if (text.empty())
    throw input_error("--link-delay: there is nothing between two commas", "write none,5ms");
  parse_link("", text);
  return text;
}

std::vector<std::string> words_of(const std::string& list) {
  return list.empty() ? std::vector<std::string>{kNone} : split_words(list, ',');
}

}  // namespace

std::string Condition::label() const {
  std::string label = fmt::format("{} workers", workers);
  if (slow != 1) label += fmt::format(", the last {:g}x slower", slow);
  if (!link_rate.empty()) label += fmt::format(", links of {}", link_rate);
  if (!link_delay.empty())
    label += fmt::format(
        "{} {}", link_rate.empty() ? ", links with a delay of" : " with a delay of", link_delay);
  return label;
}

std::string Condition::slug() const {
  std::string slug = fmt::format("workers-{}", workers);
  if (slow != 1) slug += fmt::format("-slow-{:g}x", slow);
  if (!link_rate.empty()) slug += "-rate-" + link_rate;
  if (!link_delay.empty()) slug += "-delay-" + link_delay;
  return slug;
}

std::vector<Setting> Condition::settings() const {
  std::vector<Setting> settings = {{"workers", fmt::format("{}", workers)}};
  if (has_links()) settings.push_back({"strategy.fabric", "tcp"});
  if (!link_rate.empty())
    settings.push_back({"strategy.link_rate", fmt::format("\"{}\"", link_rate)});
  if (!link_delay.empty())
    settings.push_back({"strategy.link_delay", fmt::format("\"{}\"", link_delay)});
  return settings;
}

std::string Condition::faults() const {
  if (slow == 1) return "";
  return fmt::format("[[fault]]\naction = \"slow\"\nfactor = {:.6f}\nworker = {}\n", slow,
                     workers - 1);
}

std::vector<Condition> make_conditions(const ConditionLists& lists) {
  std::vector<Condition> conditions;
  for (const std::string& workers : split_words(lists.workers, ',')) {
    for (const std::string& slow : words_of(lists.slow_worker)) {
      for (const std::string& rate : words_of(lists.link_rate)) {
        for (const std::string& delay : words_of(lists.link_delay)) {
          const Condition one{.workers = parse_workers(workers),
                              .slow = parse_slow(slow),
                              .link_rate = checked_rate(rate),
                              .link_delay = checked_delay(delay)};
          if (std::find(conditions.begin(), conditions.end(), one) == conditions.end())
            conditions.push_back(one);
        }
      }
    }
  }
  return conditions;
}

}  // namespace starling
