// A history as JSON, kept in checkpoints so that a resumed run goes on with it. Every number comes
// back with its bits; those that JSON does not know are written as "nan", "inf" and "-inf".
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "starling/history.h"

namespace starling {

nlohmann::json history_to_json(const History& history);
// Throws input Error when the JSON is not a history.
History history_from_json(const nlohmann::json& json);

}  // namespace starling
