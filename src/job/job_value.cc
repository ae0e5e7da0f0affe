#include "job/job_value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "job/suggest.h"

namespace starling {
namespace {

bool from_setting(const toml::node& node) {
  return node.source().path && node.source().path->starts_with(kSetPrefix);
}

// Puts one value into one slot; an overload per type of field.
class Assigner {
 public:
  Assigner(const toml::node& node, const FieldPlace& field) : node_(node), field_(field) {}

  void operator()(std::string* out) const {
    if (const auto text = node_.value_exact<std::string>()) {
      *out = *text;
    } else if (from_setting(node_) && node_.is_value()) {
      // A name like 2024 needs no quotes on the command line.
      const std::string& source = *node_.source().path;
      *out = source.substr(source.find('=') + 1);
    } else {
      wrong_type();
    }
    check_choice(*out);
  }
  void operator()(bool* out) const {
    const auto value = node_.value_exact<bool>();
    if (!value) wrong_type();
    *out = *value;
  }
  void operator()(uint64_t* out) const { *out = whole(node_, field_.range); }
  void operator()(double* out) const { *out = number(); }
  void operator()(std::optional<double>* out) const { *out = number(); }
  void operator()(std::filesystem::path* out) const {
    std::string text;
    (*this)(&text);
    if (text.empty()) {
      out->clear();
      return;
    }
    *out = from_setting(node_) ? std::filesystem::path(text)
                               : (field_.folder / text).lexically_normal();
  }
  void operator()(Shape* out) const {
    const toml::array* list = node_.as_array();
    if (list == nullptr || list->empty() || list->size() > Shape::kMaxRank) wrong_type();
    std::vector<int64_t> extents;
    double elements = 1;
    for (const toml::node& item : *list) {
      extents.push_back(static_cast<int64_t>(whole(item, {.min = 1, .max = 1 << 30})));
      elements *= static_cast<double>(extents.back());
    }
    if (elements > 0x1p40) {
      throw input_error(fmt::format("{}: {} has {} elements in all", place(node_.source()),
                                    field_.path, elements),
                        "a sample has at most 2^40 numbers; check the extents");
    }
    *out = Shape(extents);
  }
  void operator()(Extent* out) const { *out = extent(); }
  void operator()(Padding* out) const {
    if (const auto text = node_.value_exact<std::string>()) {
      if (*text != "valid" && *text != "same") wrong_type();
      *out = *text == "same" ? same : valid;
    } else {
      *out = pad(extent());
    }
  }
  void operator()(std::vector<std::string>* out) const {
    const toml::array* list = node_.as_array();
    if (list == nullptr) wrong_type();
    std::vector<std::string> texts;
    for (const toml::node& item : *list) {
      const auto text = item.value_exact<std::string>();
      if (!text) wrong_type();
      texts.push_back(*text);
    }
    *out = std::move(texts);
  }
  void operator()(std::vector<uint64_t>* out) const {
    const toml::array* list = node_.as_array();
    if (list == nullptr) wrong_type();
    std::vector<uint64_t> numbers;
    for (const toml::node& item : *list) numbers.push_back(whole(item, {}));
    *out = std::move(numbers);
  }
  void operator()(std::vector<LayerJob>*) const { wrong_type(); }

  Slot slot_for_messages;

 private:
  [[noreturn]] void wrong_type() const {
    throw input_error(
        fmt::format("{}: {} is {}", place(node_.source()), field_.path, found_text(node_)),
        fmt::format("{} must be: {}", field_.path,
                    type_text(slot_for_messages, field_.range, field_.choices)));
  }
  [[noreturn]] void out_of_range(const std::string& found) const {
    throw input_error(
        fmt::format("{}: {} = {} is out of range", place(node_.source()), field_.path, found),
        fmt::format("{} must be: {}", field_.path,
                    type_text(slot_for_messages, field_.range, field_.choices)));
  }
  bool inside(double value, const Range& range) const {
    const bool above = range.without_min ? value > range.min : value >= range.min;
    const bool below = range.without_max ? value < range.max : value <= range.max;
    return above && below;  // false for NaN
  }
  uint64_t whole(const toml::node& node, const Range& range) const {
    const auto value = node.value_exact<int64_t>();
    if (!value) wrong_type();
    if (*value < 0 || !inside(static_cast<double>(*value), range)) {
      out_of_range(fmt::format("{}", *value));
    }
    return static_cast<uint64_t>(*value);
  }
  double number() const {
    double value = 0;
    if (const auto exact = node_.value_exact<double>()) {
      value = *exact;
    } else if (const auto integer = node_.value_exact<int64_t>()) {
      value = static_cast<double>(*integer);
    } else {
      wrong_type();
    }
    if (!inside(value, field_.range)) out_of_range(fmt::format("{}", value));
    return value;
  }
  Extent extent() const {
    if (const toml::array* pair = node_.as_array()) {
      if (pair->size() != 2) wrong_type();
      return {static_cast<int64_t>(whole((*pair)[0], field_.range)),
              static_cast<int64_t>(whole((*pair)[1], field_.range))};
    }
    return static_cast<int64_t>(whole(node_, field_.range));
  }
  void check_choice(const std::string& text) const {
    if (field_.choices.empty()) return;
    std::vector<std::string> known(field_.choices.begin(), field_.choices.end());
    for (const std::string& choice : known) {
      if (choice == text) return;
    }
    const auto meant = nearest(text, known);
    std::string hint = meant ? fmt::format("did you mean \"{}\"? ", *meant) : "";
    hint += fmt::format("{} is one of: {}", field_.path, fmt::join(known, ", "));
    if (field_.path == "strategy.name") hint += "; more come with later versions";
    throw input_error(
        fmt::format("{}: {} = \"{}\" is not known", place(node_.source()), field_.path, text),
        hint);
  }

  const toml::node& node_;
  const FieldPlace& field_;
};

}  // namespace

std::string place(const toml::source_region& source) {
  if (!source.path) return "the job";
  if (source.path->starts_with(kSetPrefix)) return *source.path;
  return fmt::format("{}:{}:{}", *source.path, source.begin.line, source.begin.column);
}

toml::table parse_toml(const std::string& text, const std::string& where, const char* hint) {
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    throw input_error(
        fmt::format("{}: is not TOML: {}", place(error.source()), std::string(error.description())),
        hint);
  }
}

std::string found_text(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    constexpr size_t kShown = 60;
    return fmt::format("\"{}\" (a text)",
                       text->size() > kShown ? text->substr(0, kShown) + "…" : *text);
  }
  if (const auto value = node.value_exact<int64_t>()) {
    return fmt::format("{} (a whole number)", *value);
  }
  if (const auto value = node.value_exact<double>()) return fmt::format("{} (a number)", *value);
  if (const auto value = node.value_exact<bool>()) return *value ? "true" : "false";
  if (node.is_array()) return fmt::format("a list of {}", node.as_array()->size());
  if (node.is_table()) return "a table";
  return "a date or time";
}

void assign(const Slot& slot, const toml::node& node, const FieldPlace& field) {
  Assigner assigner(node, field);
  assigner.slot_for_messages = slot;
  std::visit(assigner, slot);
}

}  // namespace starling
