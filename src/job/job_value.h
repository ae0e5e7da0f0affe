// One value of a job file put into its field, with everything checked. Internal to src/job: the
// only headers that know toml++ are this one and its users.
#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <string>

#include "job/job_fields.h"
#include "starling/error.h"

namespace starling {

// What begins the source path of a value that was given by --set.
inline constexpr std::string_view kSetPrefix = "--set ";

// "job.toml:3:7", or "--set key=value".
std::string place(const toml::source_region& source);
// The text of a file as a table. Throws input Error with the hint when it is not TOML.
toml::table parse_toml(const std::string& text, const std::string& where, const char* hint);
// A value as messages name it: `"many" (a text)`.
std::string found_text(const toml::node& node);

struct FieldPlace {
  std::string path;  // "training.batch"
  const Range& range;
  std::span<const std::string_view> choices;
  std::filesystem::path folder;  // what relative paths in the file are relative to
};

// Writes the value into the slot, which is not a list of layers. Throws input Error.
void assign(const Slot& slot, const toml::node& node, const FieldPlace& field);

}  // namespace starling
