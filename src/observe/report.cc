#include "observe/report.h"

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"

namespace starling {
namespace {

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

}  // namespace

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
