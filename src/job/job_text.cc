// Values, types and whole jobs as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "job/job_fields.h"

namespace starling {
namespace {

constexpr std::string_view kUnset = "–";

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (code < 0x20 || code == 0x7f) {
      result += fmt::format("\\u{:04X}", code);
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string extent_text(const Extent& extent) {
  if (extent.h == 0 && extent.w == 0) return std::string(kUnset);
  return extent.h == extent.w ? fmt::format("{}", extent.h)
                              : fmt::format("[{}, {}]", extent.h, extent.w);
}

std::string layers_text(const std::vector<LayerJob>& layers) {
  std::vector<std::string> texts;
  for (const LayerJob& given : layers) {
    LayerJob layer = given;
    const LayerType* type = find_layer_type(layer.type);
    if (type == nullptr) continue;
    std::vector<std::string> pairs;
    for (const LayerField& field : type->fields) {
      const std::string value = value_text(field.slot(layer));
      if (field.required || value != default_text(*type, field)) {
        pairs.push_back(fmt::format("{} = {}", field.key, value));
      }
    }
    texts.push_back(fmt::format("{{{}}}", fmt::join(pairs, ", ")));
  }
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

struct ValueText {
  std::string operator()(const std::string* v) const {
    return v->empty() ? std::string(kUnset) : in_quotes(*v);
  }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  std::string operator()(const uint64_t* v) const { return fmt::format("{}", *v); }
  std::string operator()(const double* v) const { return fmt::format("{}", *v); }
  std::string operator()(const std::optional<double>* v) const {
    return *v ? fmt::format("{}", **v) : std::string(kUnset);
  }
  std::string operator()(const std::filesystem::path* v) const {
    return v->empty() ? std::string(kUnset) : in_quotes(v->string());
  }
  std::string operator()(const Shape* v) const {
    if (v->rank() == 0) return std::string(kUnset);
    std::vector<int64_t> extents;
    for (int i = 0; i < v->rank(); ++i) extents.push_back((*v)[i]);
    return fmt::format("[{}]", fmt::join(extents, ", "));
  }
  std::string operator()(const Extent* v) const { return extent_text(*v); }
  std::string operator()(const Padding* v) const {
    if (v->same) return "\"same\"";
    return v->each.h == 0 && v->each.w == 0 ? "\"valid\"" : extent_text(v->each);
  }
  std::string operator()(const std::vector<std::string>* v) const {
    std::vector<std::string> texts;
    for (const std::string& text : *v) texts.push_back(in_quotes(text));
    return fmt::format("[{}]", fmt::join(texts, ", "));
  }
  std::string operator()(const std::vector<uint64_t>* v) const {
    return fmt::format("[{}]", fmt::join(*v, ", "));
  }
  std::string operator()(const std::vector<LayerJob>* v) const { return layers_text(*v); }
};

std::string range_text(const Range& range) {
  const bool has_min = (range.min != 0 && range.min > -1e18) || range.without_min;
  const bool has_max = range.max < 1e18;
  const auto number = [](double value) {
    return value == static_cast<double>(static_cast<int64_t>(value)) && value < 1e15 &&
                   value > -1e15
               ? fmt::format("{}", static_cast<int64_t>(value))
               : fmt::format("{}", value);
  };
  if (!has_max) {
    if (range.without_min) return ", greater than " + number(range.min);
    return has_min ? ", at least " + number(range.min) : "";
  }
  return fmt::format(", {}{} … {}{}", range.without_min ? "above " : "", number(range.min),
                     range.without_max ? "below " : "", number(range.max));
}

}  // namespace

std::string value_text(const Slot& slot) { return std::visit(ValueText{}, slot); }

std::string type_text(const Slot& slot, const Range& range,
                      std::span<const std::string_view> choices) {
  if (!choices.empty()) {
    std::vector<std::string> texts;
    for (const std::string_view choice : choices) texts.push_back(in_quotes(choice));
    return fmt::format("one of {}", fmt::join(texts, ", "));
  }
  struct Visitor {
    std::string range;
    std::string operator()(const std::string*) const { return "text"; }
    std::string operator()(const bool*) const { return "true or false"; }
    std::string operator()(const uint64_t*) const { return "whole number" + range; }
    std::string operator()(const double*) const { return "number" + range; }
    std::string operator()(const std::optional<double>*) const { return "number" + range; }
    std::string operator()(const std::filesystem::path*) const { return "path"; }
    std::string operator()(const Shape*) const { return "list of up to 6 whole numbers"; }
    std::string operator()(const Extent*) const { return "whole number or [height, width]"; }
    std::string operator()(const Padding*) const {
      return "\"valid\", \"same\", whole number or [height, width]";
    }
    std::string operator()(const std::vector<std::string>*) const { return "list of texts"; }
    std::string operator()(const std::vector<uint64_t>*) const { return "list of whole numbers"; }
    std::string operator()(const std::vector<LayerJob>*) const { return "list of layers"; }
  };
  return std::visit(Visitor{range_text(range)}, slot);
}

std::string job_to_toml(const Job& given) {
  Job job = given;
  std::string text;
  for (const Section& section : job_sections()) {
    if (section.is_on != nullptr && !section.is_on(job)) continue;
    if (!section.path.empty()) text += fmt::format("\n[{}]\n", section.path);
    for (const JobField& field : section.fields) {
      const Slot slot = field.slot(job);
      if (const auto* list = std::get_if<std::vector<LayerJob>*>(&slot)) {
        // One layer a line.
        text += fmt::format("{} = [\n", field.key);
        for (const LayerJob& layer : **list) {
          const std::string one = layers_text({layer});
          text += "  " + one.substr(1, one.size() - 2) + ",\n";
        }
        text += "]\n";
        continue;
      }
      const std::string value = value_text(slot);
      if (value != kUnset) text += fmt::format("{} = {}\n", field.key, value);
    }
  }
  return text;
}

}  // namespace starling
