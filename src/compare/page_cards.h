// The pictures of one condition on the page, each on a card with a title. Those of what there is
// none of are empty. Pure functions.
#pragma once

#include <string>

#include "compare/summary.h"

namespace starling {

// The series of a strategy: one process has the first colour, the others of a condition those after
// it, and with the next pattern of dashes when all colours are used up.
size_t series_of(const ConditionSummary& condition, size_t index);

// Accuracy against time, samples, and bytes if any were sent.
std::string accuracy_cards(const ConditionSummary& condition, double goal);
std::string goal_card(const ConditionSummary& condition, double goal);
std::string times_card(const ConditionSummary& condition);
std::string staleness_card(const ConditionSummary& condition);
std::string disagreement_card(const ConditionSummary& condition);

}  // namespace starling
