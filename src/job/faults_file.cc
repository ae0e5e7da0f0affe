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
constexpr double kMaxFactor = 1e6;
constexpr std::array<std::string_view, 6> kKeys = {"action", "worker", "point",
                                                   "step",   "factor", "steps"};
const std::vector<std::string> kActions = {"kill", "freeze", "hang", "slow"};  // as Fault::Action

std::vector<std::string> point_names() {
  std::vector<std::string> names;
  for (size_t i = 0; i < static_cast<size_t>(FaultPoint::kCount); ++i)
    names.emplace_back(name_of(static_cast<FaultPoint>(i)));
  return names;
}

// The value of the key is missing, or not what it should be.
[[noreturn]] void refuse(const toml::table& table, std::string_view key, const std::string& hint) {
  const toml::node* const node = table.get(key);
  if (node == nullptr)
    throw input_error(fmt::format("{}: {} is missing", place(table.source()), key), hint);
  throw input_error(fmt::format("{}: {} is {}", place(node->source()), key, found_text(*node)),
                    hint);
}

// Which of the names the key has.
size_t choice_of(const toml::table& table, std::string_view key,
                 const std::vector<std::string>& names) {
  const auto found = std::find(names.begin(), names.end(), table[key].value_or(std::string()));
  if (found == names.end())
    refuse(table, key, fmt::format("use one of: {}", fmt::join(names, ", ")));
  return static_cast<size_t>(found - names.begin());
}

int64_t count_of(const toml::table& table, std::string_view key) {
  const auto number = table[key].value_exact<int64_t>();
  if (!number || *number < 0) refuse(table, key, "give a whole number, 0 or more");
  return *number;
}

// What only the one kind of faults has is no part of the other.
void refuse_keys(const toml::table& table, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!table.contains(key)) continue;
    refuse(table, key,
           "\"slow\" has factor and steps; \"kill\", \"freeze\" and \"hang\" have point");
  }
}

void read_slow(const toml::table& table, Fault& fault) {
  refuse_keys(table, {"point"});
  fault.factor = table["factor"].value<double>().value_or(0);
  if (!(fault.factor >= 1 && fault.factor <= kMaxFactor)) {
    refuse(table, "factor",
           fmt::format("give how many times as long computing takes, 1 to {}", kMaxFactor));
  }
  if (table.contains("steps")) fault.steps = static_cast<uint64_t>(count_of(table, "steps"));
  if (!table.contains("worker")) fault.worker = Fault::kEveryWorker;
}

Fault read_fault(const toml::table& table) {
  for (const auto& [key, node] : table) {
    if (std::find(kKeys.begin(), kKeys.end(), key.str()) != kKeys.end()) continue;
    throw input_error(fmt::format("{}: unknown key {}", place(node.source()), key.str()),
                      fmt::format("a fault has: {}", fmt::join(kKeys, ", ")));
  }
  Fault fault;
  fault.action = static_cast<Fault::Action>(choice_of(table, "action", kActions));
  if (fault.action == Fault::Action::kSlow) {
    read_slow(table, fault);
  } else {
    refuse_keys(table, {"factor", "steps"});
    fault.point = static_cast<FaultPoint>(choice_of(table, "point", point_names()));
  }
  if (fault.worker != Fault::kEveryWorker)
    fault.worker = static_cast<int>(std::min<int64_t>(count_of(table, "worker"), INT32_MAX));
  if (table.contains("step")) fault.step = static_cast<uint64_t>(count_of(table, "step"));
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& text, const std::string& where) {
  const toml::table root = parse_toml(text, where, "see docs/faults.md for an example");
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
