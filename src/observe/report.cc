#include "observe/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"

namespace starling {
namespace {

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

nlohmann::ordered_json times_to_json(const std::vector<Report::Times>& times) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const Report::Times& worker : times) {
    workers.push_back({{"input_s", worker.input},
                       {"compute_s", worker.compute},
                       {"communication_s", worker.communication},
                       {"hidden_s", worker.hidden},
                       {"waiting_s", worker.waiting}});
  }
  return workers;
}

}  // namespace

std::vector<int> stragglers(const std::vector<Report::Times>& times) {
  constexpr double kSlow = 1.25;
  std::vector<double> compute;
  for (const Report::Times& worker : times) compute.push_back(worker.compute);
  if (compute.size() < 2) return {};
  // The lower median: of two workers the faster one is the measure.
  const auto middle = compute.begin() + static_cast<std::ptrdiff_t>((compute.size() - 1) / 2);
  std::nth_element(compute.begin(), middle, compute.end());
  std::vector<int> slow;
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i].compute > kSlow * *middle) slow.push_back(static_cast<int>(i));
  }
  return slow;
}

std::string report_to_json(const Report& report) {
  const nlohmann::ordered_json json = {
      {"strategy", report.strategy},
      {"workers", report.workers},
      {"lanes", report.lanes},
      {"shards", report.shards},
      {"micro_batch", report.micro_batch},
      {"exact", report.exact},
      {"precision", report.precision},
      {"isa", report.isa},
      {"epochs", report.epochs},
      {"batch", report.batch},
      {"accumulate", report.accumulate},
      {"seed", report.seed},
      {"steps", report.steps},
      {"samples", report.samples},
      {"wall_s", report.wall_s},
      {"samples_per_s", report.samples_per_s},
      {"train_loss", or_null(report.train_loss)},
      {"test_loss", or_null(report.test_loss)},
      {"test_accuracy", or_null(report.test_accuracy)},
      {"weights_sha256", or_null(report.weights_sha256)},
      {"bytes_sent", report.bytes_sent},
      {"worker_times", times_to_json(report.times)},
      {"stragglers", stragglers(report.times)},
      {"samples_unique", or_null(report.samples_unique)},
      {"samples_duplicated", or_null(report.samples_duplicated)},
      {"samples_missing", or_null(report.samples_missing)},
      {"resumed_from", or_null(report.resumed_from)},
      {"stopped_by", or_null(report.stopped_by)},
      {"version", report.version.empty() ? STARLING_VERSION : report.version},
  };
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void write_report(const Report& report, const std::filesystem::path& path) {
  write_file_atomically(path, report_to_json(report));
}

}  // namespace starling
