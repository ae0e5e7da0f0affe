#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cluster/bench_all_reduce.h"
#include "cluster/launcher.h"
#include "fabric/paced/link_options.h"
#include "starling/cluster.h"
#include "starling/error.h"

namespace starling {
namespace {

// 65536 as "64 KiB".
std::string size_text(size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB"};
  size_t unit = 0;
  while (unit < 3 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", bytes, kUnits[unit]);
}

// Three digits and a unit.
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

double gb_per_s(const BenchAllReduceRow& row) {
  return static_cast<double>(row.bytes) / row.seconds / 1e9;
}

void print_table(const std::vector<BenchAllReduceRow>& rows) {
  fmt::print("{:>10}  {:<27}  {:>10}  {:>8}  {:>10}  {:>8}\n", "size", "algorithm", "time", "GB/s",
             "bare sum", "of bare");
  for (const BenchAllReduceRow& row : rows) {
    const bool bare = row.bare_seconds > 0;
    fmt::print("{:>10}  {:<27}  {:>10}  {:>8.3g}  {:>10}  {:>8}\n", size_text(row.bytes),
               row.algorithm, time_text(row.seconds), gb_per_s(row),
               bare ? time_text(row.bare_seconds) : "-",
               bare ? fmt::format("{:.0f}%", 100 * row.bare_seconds / row.seconds) : "-");
  }
}

// " as over 100mbit, 5ms", if the network is another.
std::string link_text(const Arguments& arguments) {
  std::string text;
  for (const std::string& what : {arguments.link_rate, arguments.link_delay}) {
    if (!what.empty()) text += (text.empty() ? " as over " : ", ") + what;
  }
  return text;
}

std::string json_text(const Arguments& arguments, const std::vector<BenchAllReduceRow>& rows) {
  OrderedJson json{{"workers", arguments.workers},     {"fabric", arguments.fabric},
                   {"link_rate", arguments.link_rate}, {"link_delay", arguments.link_delay},
                   {"repeats", arguments.repeats},     {"rows", OrderedJson::array()}};
  for (const BenchAllReduceRow& row : rows) {
    OrderedJson line{{"bytes", row.bytes},
                     {"algorithm", row.algorithm},
                     {"seconds", row.seconds},
                     {"gb_per_s", gb_per_s(row)},
                     {"bare_seconds", nullptr}};
    if (row.bare_seconds > 0) line["bare_seconds"] = row.bare_seconds;
    json["rows"].push_back(std::move(line));
  }
  return to_text(json, 2) + "\n";
}

}  // namespace

int bench_all_reduce_command(const Arguments& arguments, const Environment& environment) {
  if (!environment.is_worker) {
    // Before minutes of measuring, and by one process instead of all.
    if (!arguments.json.empty()) AtomicFile writable(arguments.json);
    return launch({.command = arguments.command_line,
                   .workers = arguments.workers,
                   .lanes = 1,
                   .fabric = arguments.fabric == "tcp" ? FabricKind::kTcp : FabricKind::kShm,
                   .link = parse_link(arguments.link_rate, arguments.link_delay)});
  }
  const Cluster cluster = Cluster::from_environment();
  const std::vector<BenchAllReduceRow> rows =
      bench_all_reduce(cluster.world(), {.sizes = arguments.sizes, .repeats = arguments.repeats});
  if (!cluster.is_chief()) return kExitDone;
  fmt::print("all-reduce, {} workers, {}{}; medians of {} samples\n", cluster.workers(),
             arguments.fabric, link_text(arguments), arguments.repeats);
  print_table(rows);
  if (!arguments.json.empty()) write_file_atomically(arguments.json, json_text(arguments, rows));
  return kExitDone;
}

}  // namespace starling
