#include "compare/strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/words.h"
#include "job/job_fields.h"
#include "job/suggest.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr const char* kExample = "for instance all_reduce,local_sgd:period=16/64:nesterov";

const Section& strategy_section() {
  const auto sections = job_sections();
  return *std::find_if(sections.begin(), sections.end(),
                       [](const Section& section) { return section.path == "strategy"; });
}

const JobField* find_field(std::string_view key) {
  const std::vector<JobField>& fields = strategy_section().fields;
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const JobField& field) { return field.key == key; });
  return found == fields.end() ? nullptr : &*found;
}

bool has_choice(const JobField& field, std::string_view word) {
  return std::find(field.choices.begin(), field.choices.end(), word) != field.choices.end();
}

// The field of which the word is a value; null when there is none.
const JobField* field_of_word(std::string_view word) {
  for (const JobField& field : strategy_section().fields) {
    if (field.key != "name" && has_choice(field, word)) return &field;
  }
  return nullptr;
}

std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const std::string_view name : find_field("name")->choices) {
    if (name != "auto") names.emplace_back(name);
  }
  return names;
}

[[noreturn]] void refuse_strategy(const std::string& name) {
  std::vector<std::string> known = strategy_names();
  const auto meant = nearest(name, known);
  throw input_error(fmt::format("--strategies: there is no strategy \"{}\"", name),
                    meant ? fmt::format("did you mean {}?", *meant)
                          : fmt::format("use all, or some of: {}", fmt::join(known, ", ")));
}

[[noreturn]] void refuse_setting(const std::string& strategy, const std::string& key) {
  std::vector<std::string> known;
  for (const JobField& field : strategy_section().fields) {
    if (field.key == "name") continue;
    known.emplace_back(field.key);
    for (const std::string_view word : field.choices) known.emplace_back(word);
  }
  const auto meant = nearest(key, known);
  throw input_error(fmt::format("--strategies: {} has no setting \"{}\"", strategy, key),
                    meant ? fmt::format("did you mean {}?", *meant)
                          : "use key=value, where the key is a field of [strategy]: docs/job.md");
}

// One setting, "period=16/64" or "nesterov/average": its key, and the values to try.
struct Choice {
  std::string key;
  std::vector<std::string> values;
};

Choice parse_choice(const std::string& strategy, const std::string& text) {
  const size_t equals = text.find('=');
  Choice choice;
  choice.values = split_words(equals == std::string::npos ? text : text.substr(equals + 1), '/');
  if (equals != std::string::npos) {
    choice.key = text.substr(0, equals);
    if (choice.key == "name" || find_field(choice.key) == nullptr)
      refuse_setting(strategy, choice.key);
  } else {
    const JobField* const field = field_of_word(choice.values.front());
    if (field == nullptr) refuse_setting(strategy, text);
    choice.key = field->key;
  }
  for (const std::string& value : choice.values) {
    if (!value.empty()) continue;
    throw input_error(fmt::format("--strategies: {}:{} lacks a value", strategy, text), kExample);
  }
  return choice;
}

// Every combination of the settings' values.
std::vector<ComparedStrategy> parse_strategy(const std::string& text) {
  const std::vector<std::string> parts = split_words(text, ':');
  const std::string& name = parts.front();
  const std::vector<std::string> known = strategy_names();
  if (std::find(known.begin(), known.end(), name) == known.end()) refuse_strategy(name);
  if (name == "single" && parts.size() > 1)
    throw input_error("--strategies: single is one process, and has no settings",
                      "leave them away");
  std::vector<ComparedStrategy> grid = {{name, {}}};
  for (size_t i = 1; i < parts.size(); ++i) {
    const Choice choice = parse_choice(name, parts[i]);
    for (const auto& [key, value] : grid.front().settings) {
      if (key != choice.key) continue;
      throw input_error(fmt::format("--strategies: {} has the setting \"{}\" twice", name, key),
                        fmt::format("several values are tried if they are given as {}={}/{}", key,
                                    value, choice.values.front()));
    }
    std::vector<ComparedStrategy> next;
    for (const ComparedStrategy& before : grid) {
      for (const std::string& value : choice.values) {
        next.push_back(before);
        next.back().settings.push_back({choice.key, value});
      }
    }
    grid = std::move(next);
  }
  return grid;
}

}  // namespace

std::string ComparedStrategy::label() const {
  std::string label = name;
  for (const auto& [key, value] : settings) {
    const JobField* const field = field_of_word(value);
    label +=
        field != nullptr && field->key == key ? " " + value : fmt::format(" {}={}", key, value);
  }
  return label;
}

std::string ComparedStrategy::slug() const {
  std::string slug = label();
  std::replace_if(
      slug.begin(), slug.end(),
      [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '.'; },
      '-');
  return slug;
}

const std::vector<ComparedStrategy>& all_strategies() {
  static const std::vector<ComparedStrategy> all = {
      {"single", {}},
      {"all_reduce", {}},
      {"sharded", {}},
      {"parameter_server", {{"consistency", "sync"}}},
      {"parameter_server", {{"consistency", "async"}}},
      {"parameter_server", {{"consistency", "ssp"}}},
      {"parameter_server", {{"consistency", "backup"}}},
      {"local_sgd", {{"period", "64"}, {"outer", "nesterov"}}},
      {"elastic_averaging", {{"period", "4"}}},
      {"gossip", {{"period", "16"}}},
      {"incremental", {{"period", "64"}, {"outer", "nesterov"}}},
  };
  return all;
}

std::vector<ComparedStrategy> parse_strategies(const std::string& text) {
  std::vector<ComparedStrategy> found;
  for (const std::string& part : split_words(text, ',')) {
    if (part.empty()) throw input_error("--strategies names no strategy in one place", kExample);
    const std::vector<ComparedStrategy> some =
        part == "all" ? all_strategies() : parse_strategy(part);
    for (const ComparedStrategy& one : some) {
      const bool is_known = std::any_of(found.begin(), found.end(), [&](const auto& other) {
        return other.label() == one.label();
      });
      if (!is_known) found.push_back(one);
    }
  }
  return found;
}

}  // namespace starling
