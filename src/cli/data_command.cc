#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/say.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "data/catalog.h"
#include "data/fetch.h"
#include "job/job_build.h"

namespace starling {
namespace {

void print_info(const char* role, const data::Dataset& dataset) {
  const data::Info info = data::info(dataset);
  fmt::print("{}: {}\n", role, info.description);
  fmt::print("  samples   {}\n", info.samples);
  fmt::print("  features  {}, from {} to {}, mean {:.4f}\n", info.feature_shape.to_string(),
             info.feature_min, info.feature_max, info.feature_mean);
  fmt::print("  labels    {}, from {} to {}\n", info.label_shape.to_string(), info.label_min,
             info.label_max);
  constexpr size_t kShown = 20;
  if (info.class_counts.empty()) return;
  const std::span<const uint64_t> counts(info.class_counts);
  fmt::print("  classes   {}: {}{}\n", counts.size(),
             fmt::join(counts.first(std::min(kShown, counts.size())), ", "),
             counts.size() > kShown ? ", …" : "");
}

}  // namespace

int data_get_command(const Arguments& arguments) {
  const std::filesystem::path folder =
      data::get(arguments.target, [](const std::string& line) { say(stderr, "{}\n", line); });
  fmt::print("{} is in {}\n", arguments.target, folder.string());
  return kExitDone;
}

int data_info_command(const Arguments& arguments) {
  std::error_code ignored;
  const bool is_job =
      arguments.target.ends_with(".toml") || std::filesystem::exists(arguments.target, ignored);
  if (is_job) {
    const JobData data = open_data(load_job(arguments.target, arguments.settings));
    print_info("train", data.train);
    if (data.test) print_info("test", data.test);
  } else {
    const data::TrainTest data = data::open(data::find_entry(arguments.target), {});
    print_info("train", data.train);
    print_info("test", data.test);
  }
  return kExitDone;
}

}  // namespace starling
