#include "job/faults_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/read_file.h"
#include "job/job_value.h"
#include "job/suggest.h"

namespace starling {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr std::array<std::string_view, 4> kKeys = {"action", "worker", "point", "step"};

std::vector<std::string> point_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(FaultPoint::kCount); ++i)
    names.emplace_back(name_of(static_cast<FaultPoint>(i)));
  return names;
}

std::string text_of(const toml::table& table, std::string_view key,
                    const std::vector<std::string>& choices) {
  const toml::node* const node = table.get(key);
  const auto text = node == nullptr ? std::optional<std::string>() : node->value<std::string>();
  if (text && std::find(choices.begin(), choices.end(), *text) != choices.end()) return *text;
  const toml::node& there = node == nullptr ? static_cast<const toml::node&>(table) : *node;
  throw input_error(
      fmt::format("{}: {} {}", place(there.source()), key,
                  node == nullptr ? "is missing" : fmt::format("is {}", found_text(*node))),
      fmt::format("use one of: {}", fmt::join(choices, ", ")));
}

int64_t count_of(const toml::table& table, std::string_view key, std::optional<int64_t> otherwise) {
  const toml::node* const node = table.get(key);
  if (node == nullptr && otherwise) return *otherwise;
  const auto number = node == nullptr ? std::optional<int64_t>() : node->value_exact<int64_t>();
  if (number && *number >= 0) return *number;
  const toml::node& there = node == nullptr ? static_cast<const toml::node&>(table) : *node;
  throw input_error(
      fmt::format("{}: {} {}", place(there.source()), key,
                  node == nullptr ? "is missing" : fmt::format("is {}", found_text(*node))),
      "give a whole number, 0 or more");
}

Fault read_fault(const toml::table& table) {
  for (const auto& [key, node] : table) {
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) != kKeys.end()) continue;
    throw input_error(fmt::format("{}: unknown key {}", place(node.source()), key.str()),
                      fmt::format("a fault has: {}", fmt::join(kKeys, ", ")));
  }
  const std::vector<std::string> points = point_names();
  const std::string point = text_of(table, "point", points);
  Fault fault;
  fault.action = text_of(table, "action", {"kill", "freeze"}) == "kill" ? Fault::Action::kKill
                                                                        : Fault::Action::kFreeze;
  fault.worker = static_cast<int>(std::min<int64_t>(count_of(table, "worker", {}), INT32_MAX));
  fault.point =
      static_cast<FaultPoint>(std::find(points.begin(), points.end(), point) - points.begin());
  fault.step = static_cast<uint64_t>(count_of(table, "step", 0));
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& text, const std::string& where) {
  toml::table root;
  try {
    root = toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    throw input_error(
        fmt::format("{}: is not TOML: {}", place(error.source()), std::string(error.description())),
        "see docs/faults.md for an example");
  }
  std::vector<Fault> faults;
  for (const auto& [key, node] : root) {
    const toml::array* const list = key.str() == "fault" ? node.as_array() : nullptr;
    if (list == nullptr || !list->is_homogeneous(toml::node_type::table)) {
      throw input_error(
          fmt::format("{}: {} is not a list of faults", place(node.source()), key.str()),
          "begin each with [[fault]]: see docs/faults.md");
    }
    for (const toml::node& one : *list) faults.push_back(read_fault(*one.as_table()));
  }
  return faults;
}

std::vector<Fault> load_faults(const std::filesystem::path& path) {
  return parse_faults(read_text(path, kMaxBytes), path.string());
}

}  // namespace starling
