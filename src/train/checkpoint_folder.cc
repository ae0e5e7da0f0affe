#include "train/checkpoint_folder.h"

#include <fmt/format.h>

#include <array>

#include "base/atomic_file.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "train/safetensors_file.h"
#include "train/safetensors_json.h"

namespace starling {
namespace {


constexpr int kFormatVersion = 1;
constexpr char kFormatName[] = "starling checkpoint";
constexpr char kManifestName[] = "manifest.json";
constexpr size_t kManifestBytesMax = size_t{256} << 20;  // history and ledger of the longest runs
constexpr int kManifestDepthMax = 64;

struct Part {
  const char* file;
  std::vector<NamedTensor> Snapshot::*tensors;
  bool optional;
};
constexpr std::array<Part, 3> kParts = {{{"weights.safetensors", &Snapshot::weights, false},
                                         {"optimizer.safetensors", &Snapshot::optimizer, false},
                                         {"statistics.safetensors", &Snapshot::statistics, true}}};

Error damaged(const std::filesystem::path& path, std::string_view what) {
  return input_error(fmt::format("{}: {}", path.string(), what),
                     "the checkpoint is damaged: use an earlier one");
}

std::string text_of(const Json& value) { return to_text(value, 1); }

// The hash of a manifest is over its text without the hash itself. Reading gives the same text
// again, because numbers are written so that they are read back exactly.
std::string hash_of(const Json& manifest) { return sha256_hex(text_of(manifest)); }

Json read_manifest(const std::filesystem::path& path) {
  Json manifest = parse_strict_json(read_text(path, kManifestBytesMax), kManifestDepthMax,
                                    path.string(), "the checkpoint is damaged: use an earlier one");
  if (!manifest.is_object() || manifest.value("format", Json()) != kFormatName) {
    throw damaged(path, "not the manifest of a checkpoint");
  }
  const Json version = manifest.value("version", Json());
  if (version.is_number_unsigned() && version > kFormatVersion) {
    throw input_error(
        fmt::format("{}: a checkpoint of format version {}", path.string(),
                    version.get<uint64_t>()),
        fmt::format("this program reads up to version {}: use a newer one", kFormatVersion));
  }
  const Json declared = manifest.value("sha256", Json());
  manifest.erase("sha256");
  if (declared != hash_of(manifest)) throw damaged(path, "its SHA-256 differs from its content's");
  if (version != kFormatVersion || !manifest.contains("files") || !manifest["files"].is_object() ||
      !manifest.contains("run") || !manifest["run"].is_object()) {
    throw damaged(path, "fields are missing");
  }
  return manifest;
}

std::vector<NamedTensor> read_part(const std::filesystem::path& path, const Json& declared) {
  if (!declared.is_object() || !declared.value("bytes", Json()).is_number_unsigned() ||
      !declared.value("sha256", Json()).is_string()) {
    throw damaged(path, "the manifest does not give its size and SHA-256");
  }
  const FileBytes bytes = read_bytes(path, UINT64_MAX);
  const auto expected = declared["bytes"].get<uint64_t>();
  if (bytes.size() != expected) {
    throw damaged(path, fmt::format("{} bytes instead of {}", bytes.size(), expected));
  }
  if (sha256_hex(bytes.span()) != declared["sha256"].get_ref<const std::string&>()) {
    throw damaged(path, "its SHA-256 differs from the manifest's");
  }
  return to_named_tensors(parse_safetensors(bytes.span(), path.string()), path.string());
}

}  // namespace

void write_checkpoint_files(const Snapshot& snapshot, const std::filesystem::path& folder) {
  Json files = Json::object();
  for (const Part& part : kParts) {
    const std::vector<NamedTensor>& tensors = snapshot.*part.tensors;
    if (part.optional && tensors.empty()) continue;
    const WrittenFile file = save_weights(folder / part.file, tensors);
    files[part.file] = {{"bytes", file.bytes}, {"sha256", file.sha256}};
  }
  Json manifest = {{"format", kFormatName},
                   {"version", kFormatVersion},
                   {"files", std::move(files)},
                   {"run", snapshot.manifest}};
  manifest["sha256"] = hash_of(manifest);
  const std::string text = text_of(manifest) + "\n";
  if (text.size() > kManifestBytesMax) {
    throw run_error(fmt::format("the manifest of a checkpoint has {} bytes, more than the {} that "
                                "can be read back",
                                text.size(), kManifestBytesMax),
                    "save less with each checkpoint");
  }
  write_file_atomically(folder / kManifestName, text);
}

Snapshot read_checkpoint_files(const std::filesystem::path& folder) {
  Json manifest = read_manifest(folder / kManifestName);
  Snapshot snapshot;
  for (const Part& part : kParts) {
    const bool listed = manifest["files"].contains(part.file);
    if (!listed && !part.optional) throw damaged(folder / part.file, "the manifest lacks it");
    if (listed)
      snapshot.*part.tensors = read_part(folder / part.file, manifest["files"][part.file]);
  }
  snapshot.manifest = std::move(manifest["run"]);
  return snapshot;
}

}  // namespace starling
