#include "observe/history_json.h"

#include <cmath>
#include <limits>

#include "base/json.h"
#include "starling/error.h"

namespace starling {
namespace {

Error not_a_history(const char* what) {
  return input_error(std::string("the saved history is damaged: ") + what,
                     "resume from an earlier checkpoint");
}

Json number_to_json(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return number;
}

double number_from_json(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
  }
  throw not_a_history("a value is not a number");
}

const Json& field(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end()) throw not_a_history("a field is missing");
  return *found;
}

uint64_t count_from_json(const Json& value, uint64_t max) {
  // Numbers that the program put in itself may be of a signed type.
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0) ||
      value.get<uint64_t>() > max) {
    throw not_a_history("a count is not a whole number");
  }
  return value.get<uint64_t>();
}

}  // namespace

Json history_to_json(const History& history) {
  Json epochs = Json::array();
  for (const EpochRecord& record : history.epochs()) {
    Json values = Json::array();  // not an object: the order matters
    for (const auto& [name, value] : record.values) {
      values.push_back(Json::array({name, number_to_json(value)}));
    }
    epochs.push_back({{"epoch", record.epoch},
                      {"step", record.step},
                      {"seconds", number_to_json(record.seconds)},
                      {"samples", record.samples},
                      {"train_seconds", number_to_json(record.train_seconds)},
                      {"bytes_sent", record.bytes_sent},
                      {"values", std::move(values)}});
  }
  return epochs;
}

History history_from_json(const Json& epochs) {
  if (!epochs.is_array()) throw not_a_history("it is not a list");
  History history;
  for (const Json& epoch : epochs) {
    if (!epoch.is_object()) throw not_a_history("an epoch is not an object");
    EpochRecord record;
    record.epoch = static_cast<uint32_t>(
        count_from_json(field(epoch, "epoch"), std::numeric_limits<uint32_t>::max()));
    record.step = count_from_json(field(epoch, "step"), std::numeric_limits<uint64_t>::max());
    record.seconds = number_from_json(field(epoch, "seconds"));
    record.samples = count_from_json(field(epoch, "samples"), std::numeric_limits<uint64_t>::max());
    record.train_seconds = number_from_json(field(epoch, "train_seconds"));
    record.bytes_sent =
        count_from_json(field(epoch, "bytes_sent"), std::numeric_limits<uint64_t>::max());
    const Json& values = field(epoch, "values");
    if (!values.is_array()) throw not_a_history("the values are not a list");
    for (const Json& value : values) {
      if (!value.is_array() || value.size() != 2 || !value[0].is_string()) {
        throw not_a_history("a value is not a name and a number");
      }
      record.values.emplace_back(value[0].get<std::string>(), number_from_json(value[1]));
    }
    history.append(std::move(record));
  }
  return history;
}

}  // namespace starling
