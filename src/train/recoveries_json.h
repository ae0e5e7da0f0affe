// What a world has survived, as JSON: newcomers get it with the state, since one of them may write
// the report.
#pragma once

#include "base/json.h"
#include "cluster/world.h"

namespace starling {

Json recoveries_to_json(const std::vector<Recovery>& recoveries);
// Throws nlohmann's exception when it is something else.
std::vector<Recovery> recoveries_from_json(const Json& json);

}  // namespace starling
