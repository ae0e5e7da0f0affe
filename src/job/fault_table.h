// fault_table: what was planned to go wrong in a run (docs/faults.md), and what came of it, for the
// run's report. A pure function.
#pragma once

#include <vector>

#include "cluster/faults.h"
#include "cluster/world.h"
#include "observe/report.h"

namespace starling {

// One row for each fault of the plan, in its order.
std::vector<Report::Fault> fault_table(const std::vector<Fault>& plan,
                                       const std::vector<Recovery>& recoveries);

}  // namespace starling
