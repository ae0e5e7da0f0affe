// Reads job files: TOML and settings to a table, then the table to a Job by the tables of fields.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/read_file.h"
#include "job/job_value.h"
#include "job/suggest.h"

namespace starling {
namespace {

constexpr size_t kMaxJobBytes = 1 << 20;
constexpr int kMaxDepth = 16;  // of layers in layers

std::string joined(std::string_view section, std::string_view key) {
  return section.empty() ? std::string(key) : fmt::format("{}.{}", section, key);
}

class JobReader {
 public:
  explicit JobReader(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Job read(const toml::table& root, const std::string& where) {
    read_section(root, "");
    for (const Section& section : job_sections()) {
      for (const JobField& field : section.fields) {
        if (field.required && !seen(joined(section.path, field.key))) {
          throw input_error(
              fmt::format("{}: {} is missing", where, joined(section.path, field.key)),
              "add at least one layer: [[model.layers]] with type = \"dense\" and units = 10");
        }
      }
    }
    return std::move(job_);
  }

 private:
  bool seen(const std::string& path) const {
    return std::find(seen_.begin(), seen_.end(), path) != seen_.end();
  }

  const Section* find_section(const std::string& path) const {
    for (const Section& section : job_sections()) {
      if (section.path == path) return &section;
    }
    return nullptr;
  }

  void read_section(const toml::table& table, const std::string& path) {
    const Section& section = *find_section(path);
    if (section.turn_on != nullptr) section.turn_on(job_);
    for (const auto& [key, node] : table) {
      const std::string full = joined(path, key.str());
      if (find_section(full) != nullptr) {
        if (!node.is_table()) {
          throw input_error(
              fmt::format("{}: {} is {}", place(key.source()), full, found_text(node)),
              fmt::format("{} is a section: write [{}] and its fields below", full, full));
        }
        read_section(*node.as_table(), full);
        continue;
      }
      const JobField* field = nullptr;
      for (const JobField& known : section.fields) {
        if (known.key == key.str()) field = &known;
      }
      if (field == nullptr) unknown_key(key, path);
      seen_.push_back(full);
      const Slot slot = field->slot(job_);
      if (const auto* layers = std::get_if<std::vector<LayerJob>*>(&slot)) {
        **layers = read_layers(node, full, 0);
      } else {
        assign(slot, node, {full, field->range, field->choices, folder_});
      }
    }
  }

  [[noreturn]] void unknown_key(const toml::key& key, const std::string& section) const {
    // Fields of this section come first; then the same name elsewhere.
    std::vector<std::string> here, all;
    for (const Section& known : job_sections()) {
      if (!known.path.empty() && known.path.rfind('.') == std::string_view::npos &&
          section.empty()) {
        here.emplace_back(known.path);
      }
      if (known.path.starts_with(section + ".")) {
        here.emplace_back(known.path.substr(section.size() + 1));
      }
      for (const JobField& field : known.fields) {
        if (known.path == section) here.emplace_back(field.key);
        all.push_back(joined(known.path, field.key));
      }
    }
    std::string meant;
    if (const auto near = nearest(key.str(), here)) {
      meant = joined(section, *near);
    } else {
      for (const std::string& path : all) {
        const std::string_view name = std::string_view(path).substr(path.rfind('.') + 1);
        if (name == key.str()) meant = path;
      }
      if (const auto whole = nearest(joined(section, key.str()), all); meant.empty() && whole) {
        meant = *whole;
      }
    }
    throw input_error(
        fmt::format("{}: unknown key {}", place(key.source()), joined(section, key.str())),
        meant.empty() ? fmt::format("{} has: {}", section.empty() ? "a job" : "[" + section + "]",
                                    fmt::join(here, ", "))
                      : fmt::format("did you mean {}? docs/job.md lists every field", meant));
  }

  std::vector<LayerJob> read_layers(const toml::node& node, const std::string& path, int depth) {
    const toml::array* list = node.as_array();
    if (list == nullptr || list->empty()) {
      throw input_error(
          fmt::format("{}: {} is {}", place(node.source()), path, found_text(node)),
          fmt::format("{} is a list of at least one layer: [[{}]] or [{{type = \"dense\", "
                      "units = 10}}, …]",
                      path, path));
    }
    if (depth > kMaxDepth) {
      throw input_error(
          fmt::format("{}: layers lie in layers {} deep", place(node.source()), depth),
          fmt::format("at most {} are allowed", kMaxDepth));
    }
    std::vector<LayerJob> layers;
    for (size_t i = 0; i < list->size(); ++i) {
      layers.push_back(read_layer((*list)[i], fmt::format("{}.{}", path, i), depth));
    }
    return layers;
  }

  LayerJob read_layer(const toml::node& node, const std::string& path, int depth) {
    const toml::table* table = node.as_table();
    if (table == nullptr) {
      throw input_error(fmt::format("{}: {} is {}", place(node.source()), path, found_text(node)),
                        "a layer is a table, for instance {type = \"dense\", units = 10}");
    }
    const LayerType& type = layer_type(*table, path);
    LayerJob layer = type.defaults;
    for (const auto& [key, value] : *table) {
      const LayerField* field = nullptr;
      std::vector<std::string> known;
      for (const LayerField& option : type.fields) {
        if (option.key == key.str()) field = &option;
        known.emplace_back(option.key);
      }
      if (field == nullptr) {
        const auto meant = nearest(key.str(), known);
        throw input_error(
            fmt::format("{}: unknown key {}.{}", place(key.source()), path, key.str()),
            meant ? fmt::format("did you mean {}?", *meant)
                  : fmt::format("a {} layer has: {}", type.name, fmt::join(known, ", ")));
      }
      const Slot slot = field->slot(layer);
      const std::string full = fmt::format("{}.{}", path, field->key);
      if (const auto* layers = std::get_if<std::vector<LayerJob>*>(&slot)) {
        **layers = read_layers(value, full, depth + 1);
      } else {
        assign(slot, value, {full, field->range, field->choices, folder_});
      }
    }
    for (const LayerField& field : type.fields) {
      if (field.required && !table->contains(field.key)) {
        throw input_error(
            fmt::format("{}: {} ({}) has no {}", place(node.source()), path, type.name, field.key),
            fmt::format("add {} = …: {}", field.key, field.description));
      }
    }
    return layer;
  }

  static const LayerType& layer_type(const toml::table& table, const std::string& path) {
    std::vector<std::string> names;
    for (const LayerType& type : layer_types()) names.emplace_back(type.name);
    const std::string hint = fmt::format("layers are: {}", fmt::join(names, ", "));
    const toml::node* node = table.get("type");
    if (node == nullptr) {
      throw input_error(fmt::format("{}: {} has no type", place(table.source()), path), hint);
    }
    const auto name = node->value_exact<std::string>();
    const LayerType* type = name ? find_layer_type(*name) : nullptr;
    if (type == nullptr) {
      const auto meant = name ? nearest(*name, names) : std::nullopt;
      throw input_error(fmt::format("{}: {}.type is {}, which is no layer", place(node->source()),
                                    path, found_text(*node)),
                        meant ? fmt::format("did you mean \"{}\"? {}", *meant, hint) : hint);
    }
    return *type;
  }

  std::filesystem::path folder_;
  Job job_;
  std::vector<std::string> seen_;
};

// The value of a setting as TOML; what is no TOML is a text.
void put_value(toml::table& table, const toml::key& key, const Setting& setting,
               const std::string& source) {
  try {
    toml::table parsed = toml::parse("value = " + setting.value, source);
    if (parsed.size() == 1) {
      table.insert_or_assign(key, std::move(*parsed.get("value")));
      return;
    }
  } catch (const toml::parse_error&) {
    // A bare word.
  }
  std::ostringstream quoted;
  quoted << "value = " << toml::value<std::string>(setting.value);
  toml::table parsed = toml::parse(quoted.str(), source);
  table.insert_or_assign(key, std::move(*parsed.get("value")));
}

toml::node* element_of(toml::array& list, const std::string& part, const std::string& source) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
  if (error != std::errc() || end != part.data() + part.size() || index >= list.size()) {
    throw input_error(fmt::format("{}: there is no element {}", source, part),
                      list.empty()
                          ? "the list is empty"
                          : fmt::format("elements are counted from 0 to {}", list.size() - 1));
  }
  return list.get(index);
}

void apply_setting(toml::table& root, const Setting& setting) {
  const std::string source = fmt::format("{}{}={}", kSetPrefix, setting.key, setting.value);
  const auto source_path = std::make_shared<const std::string>(source);
  const auto key_of = [&](const std::string& part) {
    return toml::key(part, toml::source_region{{1, 1}, {1, 1}, source_path});
  };
  std::vector<std::string> parts;
  std::istringstream stream(setting.key);
  for (std::string part; std::getline(stream, part, '.');) parts.push_back(part);
  toml::node* at = &root;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (toml::array* list = at->as_array()) {
      at = element_of(*list, parts[i], source);
      continue;
    }
    toml::table* table = at->as_table();
    if (table == nullptr) {
      throw input_error(fmt::format("{}: {} is not a section", source, parts[i - 1]),
                        "docs/job.md lists every field");
    }
    if (i + 1 == parts.size()) {
      put_value(*table, key_of(parts[i]), setting, source);
      return;
    }
    if (!table->contains(parts[i])) table->insert_or_assign(key_of(parts[i]), toml::table{});
    at = table->get(parts[i]);
  }
  throw input_error(
      fmt::format("{}: this names a list or one of its elements, not a field", source),
      "name a field of it, for instance model.layers.0.filters");
}

}  // namespace

Setting parse_setting(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || text[equals - 1] == '.' || text[0] == '.') {
    throw input_error(fmt::format("--set {}: is not key=value", text),
                      "write for instance --set training.epochs=5");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

Job parse_job(const std::string& text, const std::string& where,
              const std::filesystem::path& folder, const std::vector<Setting>& settings) {
  toml::table root = parse_toml(
      text, where,
      "see https://toml.io for the syntax, and examples/fashion_cnn.toml for a whole job");
  for (const Setting& setting : settings) apply_setting(root, setting);
  return JobReader(folder).read(root, where);
}

Job load_job(const std::filesystem::path& path, const std::vector<Setting>& settings) {
  std::error_code unreadable;  // reading it says why
  if (std::filesystem::is_directory(path, unreadable)) {
    throw input_error(fmt::format("{} is a folder, not a job file", path.string()),
                      "give the job file, for instance examples/fashion_cnn.toml");
  }
  return parse_job(read_text(path, kMaxJobBytes), path.string(), path.parent_path(), settings);
}

}  // namespace starling
