// Figures as people read them: with a unit, few digits, and "±" where there is an interval. Pure
// functions.
#pragma once

#include <string>

#include "compare/estimate.h"

namespace starling {

std::string percent_text(double part);              // 0.8812 as "88.1%"
std::string percent_text(const Estimate& part);     // "88.1% ± 0.3"; "–" when there is none
std::string seconds_text(double seconds);           // "41.2 s", "3 min 20 s", "0.12 s"
std::string seconds_text(const Estimate& seconds);  // "41.2 s ± 3.1"
std::string sent_text(double bytes);                // "1.2 MB", in powers of ten, as links are
std::string count_text(double count);               // "41,230"
std::string about_time_text(double seconds);        // "about 6 min"
std::string whole_seconds_text(double seconds);     // "41 s", "3 min 20 s"

// As many characters of UTF-8 as there is room for, the last an ellipsis if some are missing.
std::string cut_text(const std::string& text, size_t characters);

// With three significant digits, and no exponent: "0.0123", "4.56", "789", "12300".
std::string digits_text(double number);

}  // namespace starling
