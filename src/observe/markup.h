// Text in SVG and HTML. Pure.
#pragma once

#include <string>
#include <string_view>

namespace starling {

// Text that is safe between tags and in attributes; control characters have no place in XML.
std::string escaped(std::string_view text);

}  // namespace starling
