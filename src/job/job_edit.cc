// Editing of a job file's text: two values are replaced or added, comments and all else stay.
#include <fmt/format.h>

#include <sstream>

#include "job/job_value.h"
#include "job/tune.h"

namespace starling {
namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The line after which a new top-level field goes: the last top-level value's, or none (0).
size_t last_top_line(const toml::table& root) {
  size_t last = 0;
  for (const auto& [key, node] : root) {
    const bool header = node.is_table() && !node.as_table()->is_inline();
    if (header || node.is_array_of_tables()) continue;
    last = std::max<size_t>(last, node.source().end.line);
  }
  return last;
}

std::string with_field(const std::string& text, const std::string& where, const std::string& key,
                       uint64_t value) {
  const toml::table root = toml::parse(text, where);
  std::vector<std::string> lines = split_lines(text);
  if (const toml::node* node = root.get(key)) {
    // What comes before a top-level whole number on its line is ASCII: columns are bytes.
    const toml::source_region& source = node->source();
    std::string& line = lines[source.begin.line - 1];
    line.replace(source.begin.column - 1, source.end.column - source.begin.column,
                 fmt::format("{}", value));
  } else {
    const auto at = static_cast<std::ptrdiff_t>(last_top_line(root));
    lines.insert(lines.begin() + at, fmt::format("{} = {}", key, value));
  }
  std::string result;
  for (const std::string& line : lines) result += line + "\n";
  return result;
}

}  // namespace

std::string with_tuning(const std::string& text, const std::string& where, uint64_t shards,
                        uint64_t micro_batch) {
  parse_job(text, where);  // throws when it is not a job
  std::string result;
  try {
    result = with_field(text, where, "shards", shards);
    result = with_field(result, where, "micro_batch", micro_batch);
    const Job job = parse_job(result, where);
    if (job.shards == shards && job.micro_batch == micro_batch) return result;
  } catch (const toml::parse_error&) {
    // Said below.
  } catch (const Error&) {
    // The same.
  }
  throw input_error(
      fmt::format("{} is written in a way that can't be edited here", where),
      fmt::format("set shards = {} and micro_batch = {} by hand, above the first section", shards,
                  micro_batch));
}

}  // namespace starling
