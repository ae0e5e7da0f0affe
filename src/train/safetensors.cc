#include "train/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "starling/error.h"
#include "train/safetensors_json.h"

namespace starling {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are written as they lie");

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the limit of the format's own library
constexpr size_t kLengthBytes = 8;
constexpr int kHeaderDepthMax = 3;  // {"name": {"shape": […]}}
constexpr char kMetadataKey[] = "__metadata__";

struct TypeName {
  std::string_view name;
  SafetensorsType type;
  uint64_t bytes;
};
constexpr std::array<TypeName, 4> kTypes = {{{"F32", SafetensorsType::kF32, 4},
                                             {"F64", SafetensorsType::kF64, 8},
                                             {"I64", SafetensorsType::kI64, 8},
                                             {"U8", SafetensorsType::kU8, 1}}};

Error damaged(std::string_view where, std::string_view what) {
  return input_error(fmt::format("{}: {}", where, what),
                     "the file is damaged, or not a safetensors file: use another copy of it");
}

// A list of whole numbers ≥ 0, or nothing when it is something else.
std::optional<std::vector<uint64_t>> whole_numbers(const nlohmann::json& list) {
  if (!list.is_array()) return std::nullopt;
  std::vector<uint64_t> numbers;
  for (const nlohmann::json& item : list) {
    if (!item.is_number_unsigned()) return std::nullopt;
    numbers.push_back(item.get<uint64_t>());
  }
  return numbers;
}

// The bytes of the shape, or nothing when they overflow.
std::optional<uint64_t> bytes_of(const std::vector<uint64_t>& shape, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  for (const uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return bytes;
}

Metadata parse_metadata(const nlohmann::json& object, std::string_view where) {
  Metadata metadata;
  if (!object.is_object()) throw damaged(where, "__metadata__ is not an object");
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) {
      throw damaged(where, fmt::format("the metadata {} is not a text", printable(key)));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Reads one entry of the header; its data lies inside `data`, whatever the header says.
SafetensorsEntry parse_entry(const std::string& name, const nlohmann::json& entry,
                             std::span<const std::byte> data, std::string_view where) {
  const auto bad = [&](std::string_view what) {
    return damaged(where, fmt::format("tensor {}: {}", printable(name), what));
  };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    throw bad("the entry must have dtype, shape and data_offsets, and nothing else");
  }
  if (!entry["dtype"].is_string()) throw bad("dtype is not a text");
  const auto& type_name = entry["dtype"].get_ref<const std::string&>();
  const auto type = std::find_if(kTypes.begin(), kTypes.end(),
                                 [&](const TypeName& t) { return t.name == type_name; });
  if (type == kTypes.end()) {
    throw input_error(
        fmt::format("{}: tensor {} has the type {}", where, printable(name), printable(type_name)),
        "F32, F64, I64 and U8 can be read: convert the file");
  }
  auto shape = whole_numbers(entry["shape"]);
  if (!shape) throw bad("shape is not a list of whole numbers");
  const auto bytes = bytes_of(*shape, type->bytes);
  if (!bytes) throw bad("the shape is larger than any memory");
  const auto offsets = whole_numbers(entry["data_offsets"]);
  if (!offsets || offsets->size() != 2) throw bad("data_offsets is not a pair of whole numbers");
  const uint64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > data.size()) {
    throw bad(fmt::format("data_offsets {} … {} lie outside the {} bytes of data", begin, end,
                          data.size()));
  }
  if (end - begin != *bytes) {
    throw bad(
        fmt::format("its shape needs {} bytes, its data_offsets hold {}", *bytes, end - begin));
  }
  return {name, type->type, std::move(*shape), data.subspan(begin, end - begin)};
}

// The tensors must cover the data from end to end: nothing overlaps and nothing hides in a hole.
void check_coverage(const std::vector<SafetensorsEntry>& tensors, std::span<const std::byte> data,
                    std::string_view where) {
  std::vector<const SafetensorsEntry*> in_order;
  for (const SafetensorsEntry& tensor : tensors) in_order.push_back(&tensor);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    if (a->data.data() != b->data.data()) return a->data.data() < b->data.data();
    return a->data.size() < b->data.size();
  });
  const std::byte* expected = data.data();
  for (const SafetensorsEntry* tensor : in_order) {
    if (tensor->data.data() != expected) {
      throw damaged(where,
                    fmt::format("tensor {} {}", printable(tensor->name),
                                tensor->data.data() < expected ? "overlaps the one before it"
                                                               : "has unused bytes before it"));
    }
    expected += tensor->data.size();
  }
  if (expected != data.data() + data.size()) {
    throw damaged(
        where, fmt::format("{} bytes after the last tensor", data.data() + data.size() - expected));
  }
}

}  // namespace

uint64_t SafetensorsEntry::elements() const {
  for (const TypeName& t : kTypes) {
    if (t.type == type) return data.size() / t.bytes;
  }
  return 0;
}

SafetensorsView parse_safetensors(std::span<const std::byte> file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    throw damaged(where, fmt::format("{} bytes are too few for a header", file.size()));
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  if (header_bytes > kHeaderBytesMax || header_bytes > file.size() - kLengthBytes) {
    throw damaged(where, fmt::format("a header of {} bytes is declared in a file of {}",
                                     header_bytes, file.size()));
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  const auto data = file.subspan(kLengthBytes + header_bytes);
  const nlohmann::json header = parse_strict_json(
      std::string_view(text, header_bytes), kHeaderDepthMax, fmt::format("{}: header", where),
      "the file is damaged, or not a safetensors file: use another copy of it");
  if (!header.is_object()) throw damaged(where, "the header is not an object");

  SafetensorsView view;
  for (const auto& [name, entry] : header.items()) {
    if (name == kMetadataKey) {
      view.metadata = parse_metadata(entry, where);
    } else {
      view.tensors.push_back(parse_entry(name, entry, data, where));
    }
  }
  check_coverage(view.tensors, data, where);
  return view;
}

std::vector<NamedTensor> to_named_tensors(const SafetensorsView& view, std::string_view where) {
  std::vector<NamedTensor> tensors;
  for (const SafetensorsEntry& entry : view.tensors) {
    const bool is_float =
        entry.type == SafetensorsType::kF32 || entry.type == SafetensorsType::kF64;
    const bool fits = entry.shape.size() <= Shape::kMaxRank && !entry.data.empty();
    if (!is_float || !fits) {
      throw input_error(
          fmt::format("{}: tensor {} {}", where, printable(entry.name),
                      is_float ? "is empty or has too many dimensions"
                               : "does not hold floating-point numbers"),
          fmt::format("weights are F32 or F64 with 1 to {} dimensions", Shape::kMaxRank));
    }
    const std::vector<int64_t> extents(entry.shape.begin(), entry.shape.end());
    NamedTensor tensor{entry.name, Shape(extents), std::vector<float>(entry.elements())};
    if (entry.type == SafetensorsType::kF32) {
      std::memcpy(tensor.values.data(), entry.data.data(), entry.data.size());
    } else {
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        double value = 0;
        std::memcpy(&value, entry.data.data() + i * sizeof(value), sizeof(value));
        tensor.values[i] = static_cast<float>(value);
      }
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

namespace {

struct Layout {
  std::string header;                       // with its padding
  std::vector<const NamedTensor*> tensors;  // by name
  uint64_t data_bytes = 0;
};

Layout lay_out(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  Layout layout;
  for (const NamedTensor& tensor : tensors) layout.tensors.push_back(&tensor);
  std::sort(layout.tensors.begin(), layout.tensors.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  nlohmann::json header = nlohmann::json::object();  // sorted by key
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  for (const NamedTensor* tensor : layout.tensors) {
    const auto elements = static_cast<uint64_t>(tensor->shape.elements());
    if (header.contains(tensor->name) || tensor->name == kMetadataKey ||
        elements != tensor->values.size()) {
      throw run_error(
          fmt::format("tensor {} of shape {} with {} values cannot be saved",
                      printable(tensor->name), tensor->shape.to_string(), tensor->values.size()),
          "names must differ, and a tensor has as many values as its shape says");
    }
    auto extents = nlohmann::json::array();
    for (int axis = 0; axis < tensor->shape.rank(); ++axis) extents.push_back(tensor->shape[axis]);
    const uint64_t end = layout.data_bytes + elements * sizeof(float);
    header[tensor->name] = {{"dtype", "F32"},
                            {"shape", std::move(extents)},
                            {"data_offsets", {layout.data_bytes, end}}};
    layout.data_bytes = end;
  }
  try {
    layout.header = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw run_error("a tensor's name or metadata is not UTF-8 and cannot be saved", "rename it");
  }
  layout.header.resize((layout.header.size() + 7) / 8 * 8, ' ');
  return layout;
}

}  // namespace

void write_safetensors(std::span<const NamedTensor> tensors, const Metadata& metadata,
                       const ByteSink& sink) {
  const Layout layout = lay_out(tensors, metadata);
  const uint64_t header_bytes = layout.header.size();
  sink(std::as_bytes(std::span(&header_bytes, 1)));
  sink(std::as_bytes(std::span(layout.header)));
  for (const NamedTensor* tensor : layout.tensors) sink(std::as_bytes(std::span(tensor->values)));
}

uint64_t safetensors_bytes(std::span<const NamedTensor> tensors, const Metadata& metadata) {
  const Layout layout = lay_out(tensors, metadata);
  return kLengthBytes + layout.header.size() + layout.data_bytes;
}

}  // namespace starling
