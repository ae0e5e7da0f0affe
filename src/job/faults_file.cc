#include "job/faults_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/read_file.h"
#include "job/job_value.h"
#include "job/suggest.h"

namespace starling {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr double kMaxFactor = 1e9, kMaxSeconds = 1e9;
constexpr uint64_t kRandomSteps = 30;

// What each action has, in the order of Fault::Action. With `at` it has no point, no step and no
// steps; only with it `seconds`.
struct Kind {
  std::string name;
  std::vector<std::string_view> required, optional;
};
const std::vector<Kind> kKinds = {
    {"kill", {"worker", "point"}, {"step", "at"}},
    {"freeze", {"worker", "point"}, {"step", "at"}},
    {"hang", {"worker", "point"}, {"step", "at"}},
    {"slow", {"factor"}, {"worker", "step", "steps", "at", "seconds"}},
    {"link", {"worker", "peer", "point"}, {"step", "at"}},
    {"disk", {}, {"worker", "step", "steps", "at", "seconds"}},
    {"corrupt", {}, {"step", "at"}},
};

std::vector<std::string> action_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.push_back(kind.name);
  return names;
}

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

double number_of(const toml::table& table, std::string_view key, double least, double most) {
  const double number = table[key].value<double>().value_or(NAN);
  if (!(number >= least && number <= most))
    refuse(table, key, fmt::format("give a number, {} to {}", least, most));
  return number;
}

int worker_of(const toml::table& table, std::string_view key) {
  return static_cast<int>(std::min<int64_t>(count_of(table, key), INT32_MAX));
}

// Only what that kind of faults has.
void check_keys(const toml::table& table, const Kind& kind) {
  std::vector<std::string_view> known = {"action"};
  known.insert(known.end(), kind.required.begin(), kind.required.end());
  known.insert(known.end(), kind.optional.begin(), kind.optional.end());
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    throw input_error(fmt::format("{}: unknown key {}", place(node.source()), key.str()),
                      fmt::format("\"{}\" has: {}", kind.name, fmt::join(known, ", ")));
  }
  for (const std::string_view key : kind.required) {
    if (!table.contains(key) && !(key == "point" && table.contains("at")))
      refuse(table, key, fmt::format("\"{}\" needs it", kind.name));
  }
  for (const std::string_view key : {"point", "step", "steps"}) {
    if (table.contains("at") && table.contains(key))
      refuse(table, key, "give a time with `at`, or a point and steps");
  }
  if (table.contains("seconds") && !table.contains("at"))
    refuse(table, "seconds", "it goes with `at`; use `steps` with `step`");
}

Fault read_fault(const toml::table& table) {
  Fault fault;
  const size_t kind = choice_of(table, "action", action_names());
  check_keys(table, kKinds[kind]);
  fault.action = static_cast<Fault::Action>(kind);
  fault.worker = table.contains("worker") ? worker_of(table, "worker") : Fault::kEveryWorker;
  if (table.contains("peer")) fault.peer = worker_of(table, "peer");
  if (table.contains("point"))
    fault.point = static_cast<FaultPoint>(choice_of(table, "point", point_names()));
  if (table.contains("step")) fault.step = static_cast<uint64_t>(count_of(table, "step"));
  if (table.contains("steps")) fault.steps = static_cast<uint64_t>(count_of(table, "steps"));
  if (table.contains("at")) fault.at = number_of(table, "at", 0, kMaxSeconds);
  if (table.contains("seconds")) fault.seconds = number_of(table, "seconds", 0, kMaxSeconds);
  if (table.contains("factor")) fault.factor = number_of(table, "factor", 1, kMaxFactor);
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

std::string_view name_of(Fault::Action action) { return kKinds[static_cast<size_t>(action)].name; }

std::vector<Fault> load_faults(const std::filesystem::path& path, const FaultSubject& subject) {
  const std::string text = path.string();
  const bool is_seed = !text.empty() && text.size() <= 18 &&
                       text.find_first_not_of("0123456789") == std::string::npos;
  return is_seed ? random_faults(std::stoull(text), subject)
                 : parse_faults(read_text(path, kMaxBytes), text);
}

std::vector<Fault> random_faults(uint64_t seed, const FaultSubject& subject) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t end) { return random() % end; };
  std::vector<int> names(static_cast<size_t>(subject.workers));
  for (size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int>(i);
  for (size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[below(i)]);
  std::vector<Fault> faults;
  if (names.size() < 2) return faults;
  const int stays = names.back();
  names.pop_back();
  const auto begin_somewhere = [&](Fault& fault) { fault.step = 1 + below(kRandomSteps); };
  for (const int worker : names) {
    Fault& fault = faults.emplace_back();
    fault.worker = worker;
    begin_somewhere(fault);
    const uint64_t kind = below(10);
    if (kind == 0) {
      fault.action = Fault::Action::kSlow;
      fault.factor = static_cast<double>(2 + below(4));
      fault.steps = 1 + below(kRandomSteps);
      continue;
    }
    fault.action = kind <= 2 ? Fault::Action::kFreeze : Fault::Action::kKill;
    if (kind == 3 && subject.has_links) {  // costs one of the two
      fault.action = Fault::Action::kLink;
      fault.peer = stays;
    }
    if (subject.apart) {
      constexpr FaultPoint kPoints[] = {FaultPoint::kStep,    FaultPoint::kGradient,
                                        FaultPoint::kPushed,  FaultPoint::kLend,
                                        FaultPoint::kApplied, FaultPoint::kStrategy,
                                        FaultPoint::kSliced,  FaultPoint::kEvaluation};
      fault.point = kPoints[below(std::size(kPoints))];
      continue;
    }
    // From the first of a step to its last.
    const auto first = static_cast<uint64_t>(FaultPoint::kStep),
               last = static_cast<uint64_t>(FaultPoint::kEvaluation);
    fault.point = static_cast<FaultPoint>(first + below(last - first + 1));
  }
  for (const Fault::Action action : {Fault::Action::kDisk, Fault::Action::kCorrupt}) {
    if (below(4) != 0) continue;
    Fault& fault = faults.emplace_back(Fault{.action = action, .worker = Fault::kEveryWorker});
    begin_somewhere(fault);
    fault.steps = action == Fault::Action::kDisk ? 1 + below(5) : 0;
  }
  return faults;
}

}  // namespace starling
