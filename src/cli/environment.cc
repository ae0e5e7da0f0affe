#include "cli/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

namespace starling {
namespace {

bool names_utf8(std::string locale) {
  std::transform(locale.begin(), locale.end(), locale.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
}

}  // namespace

ProgressOptions progress_on_stderr(const Environment& environment, bool enabled) {
  ProgressOptions options;
  options.enabled = enabled;
  options.terminal = isatty(STDERR_FILENO) == 1;
  options.color = options.terminal && environment.color;
  options.unicode = environment.unicode;
  return options;
}

Environment read_environment() {
  return read_environment([](const char* name) { return std::getenv(name); });
}

Environment read_environment(const Variable& variable) {
  // A variable that is set to nothing counts as not set, as is the custom.
  const auto text = [&](const char* name) {
    const char* value = variable(name);
    return std::string(value == nullptr ? "" : value);
  };
  Environment environment;
  if (!text("STARLING_CACHE").empty()) {
    environment.cache = text("STARLING_CACHE");
  } else if (!text("XDG_CACHE_HOME").empty()) {
    environment.cache = std::filesystem::path(text("XDG_CACHE_HOME")) / "starling";
  } else if (!text("HOME").empty()) {
    environment.cache = std::filesystem::path(text("HOME")) / ".cache" / "starling";
  }
  if (!text("STARLING_ISA").empty()) environment.isa = text("STARLING_ISA");
  environment.is_worker = !text("STARLING_RANK").empty();
  environment.is_follower = environment.is_worker && text("STARLING_RANK") != "0";
  environment.color = text("NO_COLOR").empty() && text("TERM") != "dumb";
  // The first of these that is set decides.
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (text(name).empty()) continue;
    environment.unicode = names_utf8(text(name));
    break;
  }
  return environment;
}

}  // namespace starling
