// compare.html: the summary for people, as one page that needs nothing else: no network, no
// scripts. It is light or dark as the reader wants it, and fits windows from 400 pixels on. Pure.
#pragma once

#include <string>

#include "compare/summary.h"

namespace starling {

std::string draw_page(const Summary& summary);

}  // namespace starling
