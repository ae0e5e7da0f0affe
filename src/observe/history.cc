#include "starling/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/atomic_file.h"

namespace starling {
namespace {

// A field as RFC 4180 wants it: quoted when it holds a separator.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
  return field + '"';
}

}  // namespace

double EpochRecord::value(std::string_view name) const {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](const auto& value) { return value.first == name; });
  return found == values.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

std::vector<std::string> History::names() const {
  std::vector<std::string> names;
  for (const EpochRecord& record : epochs_) {
    for (const auto& [name, value] : record.values) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::vector<double> History::column(std::string_view name) const {
  std::vector<double> column;
  for (const EpochRecord& record : epochs_) {
    column.push_back(name == "epoch"           ? static_cast<double>(record.epoch)
                     : name == "step"          ? static_cast<double>(record.step)
                     : name == "seconds"       ? record.seconds
                     : name == "samples"       ? static_cast<double>(record.samples)
                     : name == "train_seconds" ? record.train_seconds
                     : name == "bytes_sent"    ? static_cast<double>(record.bytes_sent)
                                               : record.value(name));
  }
  return column;
}

std::string History::to_csv() const {
  const std::vector<std::string> all = names();
  std::string csv = "epoch,step,seconds,samples,train_seconds,bytes_sent";
  for (const std::string& name : all) csv += "," + csv_field(name);
  csv += "\n";
  for (const EpochRecord& record : epochs_) {
    csv += fmt::format("{},{},{},{},{},{}", record.epoch, record.step, record.seconds,
                       record.samples, record.train_seconds, record.bytes_sent);
    for (const std::string& name : all) {
      const bool present = std::any_of(record.values.begin(), record.values.end(),
                                       [&](const auto& value) { return value.first == name; });
      csv += present ? fmt::format(",{}", record.value(name)) : ",";
    }
    csv += "\n";
  }
  return csv;
}

void History::write_csv(const std::filesystem::path& path) const {
  write_file_atomically(path, to_csv());
}

}  // namespace starling
