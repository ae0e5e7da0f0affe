// The fields of a job file, in one table: where a field lies in the file, what it may be, what it
// means, and where it lies in a Job. Reading, --set, writing, error messages and the test of
// docs/job.md all go by this table, so that they can't differ. Constant data.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "job/job.h"

namespace starling {

// Where the value of a field lies; its type is the field's type.
using Slot =
    std::variant<std::string*, bool*, uint64_t*, double*, std::optional<double>*,
                 std::filesystem::path*, Shape*, Extent*, Padding*, std::vector<std::string>*,
                 std::vector<uint64_t>*, std::vector<LayerJob>*>;

// What numbers a field takes.
struct Range {
  double min = 0;
  double max = 9.2e18;       // beyond: no limit but the type's
  bool without_min = false;  // the least value itself is refused
  bool without_max = false;
};

template <typename Owner>
struct FieldOf {
  std::string_view key;          // within its section or layer
  std::string_view description;  // one line
  Slot (*slot)(Owner&);
  Range range = {};
  std::span<const std::string_view> choices = {};  // of texts; empty: any
  bool required = false;
};
using JobField = FieldOf<Job>;
using LayerField = FieldOf<LayerJob>;

// A table of the file: "" is the top level, "training.early_stopping" one in another.
struct Section {
  std::string_view path;
  std::string_view description;
  std::vector<JobField> fields;
  // Of a section that turns something on by being there; null for the others.
  void (*turn_on)(Job&) = nullptr;
  bool (*is_on)(const Job&) = nullptr;
};
std::span<const Section> job_sections();

// type, name, frozen and weight_decay.
inline constexpr size_t kCommonLayerFields = 4;

struct LayerType {
  std::string_view name;
  std::string_view description;
  std::vector<LayerField> fields;  // those that all layers have come first
  LayerJob defaults;
};
std::span<const LayerType> layer_types();
// Null when there is none of that name.
const LayerType* find_layer_type(std::string_view name);

// What a field takes, for a person: "whole number, 1 … 1024".
std::string type_text(const Slot& slot, const Range& range,
                      std::span<const std::string_view> choices);
// A value as the file has it: `64`, `"relu"`, `[28, 28, 1]`; "–" when it is not set.
std::string value_text(const Slot& slot);
// The default of a field as documentation shows it: "required", or value_text.
std::string default_text(const JobField& field);
std::string default_text(const LayerType& type, const LayerField& field);

}  // namespace starling
