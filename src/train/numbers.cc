#include "train/numbers.h"

#include <fmt/format.h>

#include "base/isa.h"
#include "starling/trainer.h"

namespace starling {

std::vector<std::pair<std::string, std::string>> numbers() {
  return {{"version", version()},
          {"isa", isa_name()},
          {"onednn", onednn_name()},
          {"bf16", std::string(bf16_products_name(bf16_products()))}};
}

std::string numbers_text() {
  std::string text;
  for (const auto& [name, value] : numbers())
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  return text;
}

Json numbers_json() {
  Json json = Json::object();
  for (const auto& [name, value] : numbers()) json[name] = value;
  return json;
}

std::string numbers_changed(const Json& saved) {
  std::string text;
  for (const auto& [name, value] : numbers()) {
    const Json before = saved.is_object() ? saved.value(name, Json()) : Json();
    if (!before.is_string() || before == value) continue;  // of a version that did not say
    text += fmt::format("{}{} was {} and is {}", text.empty() ? "" : ", ", name,
                        before.get_ref<const std::string&>(), value);
  }
  return text;
}

}  // namespace starling
