// Keeps the house: reads the sources as text and fails on what the architecture or the style
// forbids. A failure names the file, the line and the rule; change the rule only together with
// ARCHITECTURE.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;

// The architecture. A folder of src/ may include itself, base, the public headers
// (include/starling) and what stands beside it here. A folder names only folders above its own
// line, so there are no cycles.
struct Arrows {
  std::string_view folder;
  std::vector<std::string_view> may_include;
};
const std::vector<Arrows> kArrows = {
    {"base", {}},
    {"tensor", {}},
    {"graph", {"tensor"}},
    {"engine", {"graph", "tensor"}},
    {"nn", {"graph", "tensor"}},
    {"optim", {"tensor"}},
    {"data", {"tensor"}},
    {"observe", {}},
    {"fabric", {}},
    {"collective", {"fabric", "tensor"}},
    {"param", {"fabric", "tensor", "optim"}},
    {"cluster", {"param", "fabric", "collective"}},
    {"strategy",
     {"cluster", "collective", "fabric", "param", "engine", "graph", "optim", "tensor"}},
    {"train",
     {"strategy", "cluster", "collective", "fabric", "param", "engine", "graph", "nn", "optim",
      "data", "observe", "tensor"}},
    {"job",
     {"train", "cluster", "param", "engine", "graph", "nn", "optim", "data", "observe", "tensor"}},
    {"compare", {"job", "cluster", "fabric", "observe"}},
    {"cli",
     {"compare", "job", "train", "cluster", "fabric", "engine", "graph", "nn", "optim", "data",
      "observe", "tensor"}},
};

// Only these folders may open sockets.
const std::set<std::string_view> kSocketFolders = {"fabric", "cluster"};
// Only these may read the environment or end the process.
const std::set<std::string_view> kProcessFolders = {"cli", "cluster"};

// Caps on lines, and the files that are over them. The list may only shrink.
constexpr size_t kHeaderLinesMax = 300;
constexpr size_t kSourceLinesMax = 600;
constexpr size_t kColumnsMax = 120;
const std::set<std::string_view> kLongFiles = {};

// A skipped test is a failure unless it stands here: how many, and why it may be.
struct Skips {
  size_t count;
  std::string_view reason;
};
const std::map<std::string_view, Skips> kSkips = {
    {"src/base/atomic_file_test.cc",
     {2, "a disk that fills up is mounted: needs root or user namespaces"}},
    {"src/observe/run_log_test.cc",
     {1, "a disk that fills up is mounted: needs root or user namespaces"}},
    {"src/tensor/gemm_bf16_test.cc",
     {2, "needs a processor that multiplies bf16 in pairs (AVX512_BF16) or in tiles (AMX)"}},
    {"src/train/checkpoint_test.cc",
     {2, "a disk that fills up is mounted: needs root or user namespaces"}},
    {"tests/command_bad_input_test.cc",
     {3, "a disk that fills up is mounted: needs root or user namespaces"}},
    {"tests/workers_fault_test.cc", {1, "a full /dev/shm is mounted: needs user namespaces"}},
};

struct File {
  std::string path;    // from the root of the project, "src/base/isa.h"
  std::string text;    // as it is
  std::string code;    // without comments
  std::string folder;  // "base" for src/base/…, else empty
  bool is_header, is_source, is_test;
};

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return text.ends_with(ending); });
}

// The text with comments blanked; line breaks and literals stay.
std::string without_comments(const std::string& text) {
  std::string code = text;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quote != 0) {
      if (text[i] == '\\') {
        ++i;
      } else if (text[i] == quote || text[i] == '\n') {
        quote = 0;
      }
    } else if (text[i] == '"' ||
               // 1'000 is a number, not the start of a character.
               (text[i] == '\'' && (i == 0 || !std::isalnum(static_cast<uint8_t>(text[i - 1]))))) {
      quote = text[i];
    } else if (text.compare(i, 2, "//") == 0 || text.compare(i, 2, "/*") == 0) {
      const std::string_view end = text[i + 1] == '/' ? "\n" : "*/";
      size_t stop = text.find(end, i + 2);
      stop = stop == std::string::npos ? text.size() : stop + (end == "\n" ? 0 : 2);
      for (; i < stop; ++i) {
        if (text[i] != '\n') code[i] = ' ';
      }
      --i;
    }
  }
  return code;
}

File read_file(const fs::path& root, const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  File file;
  file.path = path.lexically_relative(root).generic_string();
  file.text = text.str();
  file.is_header = file.path.ends_with(".h");
  file.is_source = file.path.ends_with(".cc");
  file.is_test = file.path.starts_with("tests/") ||
                 ends_with_any(file.path, {"_test.cc", "_testing.h"}) ||
                 file.path.find("/test_") != std::string::npos;
  if (file.is_header || file.is_source) file.code = without_comments(file.text);
  if (file.path.starts_with("src/")) {
    const size_t end = file.path.find('/', 4);
    if (end != std::string::npos) file.folder = file.path.substr(4, end - 4);
  }
  return file;
}

// Text files of the project that a person wrote: no corpora, no golden numbers, nothing built.
const std::vector<File>& files() {
  static const std::vector<File> all = [] {
    const fs::path root = STARLING_SOURCE_DIR;
    std::vector<File> found;
    for (const char* top :
         {"src", "include", "tests", "examples", "bench", "tools", "docs", "cmake", ".ci"}) {
      if (!fs::exists(root / top)) continue;
      for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
        const std::string path = entry.path().lexically_relative(root).generic_string();
        if (!entry.is_regular_file() || path.starts_with("tests/fuzz/corpus/") ||
            ends_with_any(path, {".json", ".svg", ".png", ".pyc"})) {
          continue;
        }
        found.push_back(read_file(root, entry.path()));
      }
    }
    for (const auto& entry : fs::directory_iterator(root)) {
      if (entry.is_regular_file() && entry.path().filename() != ".git") {
        found.push_back(read_file(root, entry.path()));
      }
    }
    std::sort(found.begin(), found.end(),
              [](const File& a, const File& b) { return a.path < b.path; });
    return found;
  }();
  return all;
}

bool is_code(const File& file) { return file.is_header || file.is_source; }
// What is part of the library or the command.
bool is_product(const File& file) {
  return is_code(file) && !file.is_test &&
         (file.path.starts_with("src/") || file.path.starts_with("include/"));
}

template <typename Function>
void for_each_line(const std::string& text, Function&& function) {
  std::istringstream stream(text);
  std::string line;
  for (size_t number = 1; std::getline(stream, line); ++number) function(number, line);
}

// Every line of the text where the pattern is found is a failure.
void forbid(const File& file, const std::string& text, const std::regex& pattern,
            const std::string& rule) {
  for_each_line(text, [&](size_t number, const std::string& line) {
    if (std::regex_search(line, pattern)) {
      ADD_FAILURE() << file.path << ":" << number << ": " << rule << "\n  " << line;
    }
  });
}

struct Include {
  size_t line;
  std::string path;
};

std::vector<Include> includes(const File& file) {
  static const std::regex pattern(R"(^\s*#\s*include\s*[<"]([^">]+)[">])");
  std::vector<Include> found;
  for_each_line(file.code, [&](size_t number, const std::string& line) {
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({number, match[1]});
  });
  return found;
}

std::string first_folder(const std::string& path) {
  const size_t end = path.find('/');
  return end == std::string::npos ? "" : path.substr(0, end);
}

const Arrows* arrows_of(std::string_view folder) {
  const auto found = std::find_if(kArrows.begin(), kArrows.end(),
                                  [&](const Arrows& arrows) { return arrows.folder == folder; });
  return found == kArrows.end() ? nullptr : &*found;
}

// What forbids the file to include that path; empty if nothing does.
std::string forbidden_arrow(const File& file, const std::string& included) {
  const std::string to = first_folder(included);
  if (to == "starling") return "";
  if (file.path.starts_with("include/") || file.path.starts_with("examples/")) {
    return arrows_of(to) ? "only public headers may be included here" : "";
  }
  if (!arrows_of(to) || to == "base" || to == file.folder) return "";
  const Arrows* arrows = arrows_of(file.folder);
  if (!arrows) return "";  // told by EveryFolderIsInTheArchitecture
  const auto& allowed = arrows->may_include;
  if (std::find(allowed.begin(), allowed.end(), to) != allowed.end()) return "";
  return file.folder + " may not include " + to;
}

TEST(Tidy, SourcesAreFound) {
  const auto count = std::count_if(files().begin(), files().end(), is_product);
  EXPECT_GT(count, 100) << "looked in " << STARLING_SOURCE_DIR;
}

TEST(Tidy, TheArchitectureHasNoCycles) {
  std::set<std::string_view> above;
  for (const Arrows& arrows : kArrows) {
    for (const std::string_view to : arrows.may_include) {
      EXPECT_TRUE(above.contains(to)) << arrows.folder << " names " << to << ", not above it";
    }
    EXPECT_TRUE(above.insert(arrows.folder).second) << arrows.folder << " stands there twice";
  }
}

TEST(Tidy, EveryFolderIsInTheArchitecture) {
  for (const File& file : files()) {
    if (!file.path.starts_with("src/") || !is_code(file)) continue;
    EXPECT_TRUE(arrows_of(file.folder))
        << file.path << ": src/" << file.folder << " has no line in the table of arrows";
  }
}

TEST(Tidy, IncludesFollowTheArchitecture) {
  size_t internal = 0;
  for (const File& file : files()) {
    const bool checked = file.path.starts_with("src/") || file.path.starts_with("include/") ||
                         file.path.starts_with("examples/");
    if (!checked || !is_code(file)) continue;
    for (const Include& include : includes(file)) {
      internal += arrows_of(first_folder(include.path)) != nullptr;
      const std::string reason = forbidden_arrow(file, include.path);
      EXPECT_EQ(reason, "") << file.path << ":" << include.line << ": " << include.path;
    }
  }
  EXPECT_GT(internal, 100u) << "includes are not recognised any more";
}

// The check itself: it must be able to fail.
TEST(Tidy, ForbiddenArrowsAreSeen) {
  const File optim{.path = "src/optim/update.cc", .folder = "optim", .is_source = true};
  EXPECT_EQ(forbidden_arrow(optim, "tensor/kernels.h"), "");
  EXPECT_EQ(forbidden_arrow(optim, "base/random.h"), "");
  EXPECT_EQ(forbidden_arrow(optim, "starling/optimizer.h"), "");
  EXPECT_EQ(forbidden_arrow(optim, "engine/plan.h"), "optim may not include engine");
  const File header{.path = "include/starling/model.h", .is_header = true};
  EXPECT_NE(forbidden_arrow(header, "graph/graph.h"), "");
  EXPECT_EQ(without_comments("a // b\n'\"' /* c\n */ \"//\" 1'000 // d"),
            "a     \n'\"'     \n    \"//\" 1'000     ");
}

TEST(Tidy, EverySourceIsBuilt) {
  std::ostringstream text;
  text << std::ifstream(STARLING_BUILD_DIR "/compile_commands.json").rdbuf();
  ASSERT_FALSE(text.str().empty()) << "no compile_commands.json in the build folder";
  // What is compiled as one is included by a file for that.
  for (const auto& entry : fs::recursive_directory_iterator(STARLING_BUILD_DIR)) {
    if (entry.path().extension() == ".cxx" && entry.path().parent_path().filename() == "Unity")
      text << std::ifstream(entry.path()).rdbuf();
  }
  const std::string commands = text.str();
  for (const File& file : files()) {
    const bool ours = file.path.starts_with("src/") || file.path.starts_with("examples/") ||
                      file.path.starts_with("tests/");
    // The outside project of the package test is built by that test.
    if (!ours || !file.is_source || file.path.starts_with("tests/package/")) continue;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (file.path.starts_with("tests/allocation/")) continue;  // it replaces malloc, as they do
#endif
    const std::string path = "\"" STARLING_SOURCE_DIR "/" + file.path + "\"";
    const bool is_built = commands.find("\"file\": " + path) != std::string::npos ||
                          commands.find("#include " + path) != std::string::npos;
    EXPECT_TRUE(is_built) << file.path << " is not built";
  }
}

TEST(Tidy, FilesKeepTheirSize) {
  for (const File& file : files()) {
    if (!is_code(file)) continue;
    const size_t lines = static_cast<size_t>(std::count(file.text.begin(), file.text.end(), '\n'));
    const size_t cap = file.is_header ? kHeaderLinesMax : kSourceLinesMax;
    if (kLongFiles.contains(file.path)) {
      EXPECT_GT(lines, cap) << file.path << " is within its cap: strike it from the list";
    } else {
      EXPECT_LE(lines, cap) << file.path << " has two subjects: split it";
    }
  }
}

TEST(Tidy, LinesKeepTheirWidth) {
  for (const File& file : files()) {
    if (!is_code(file)) continue;
    for_each_line(file.text, [&](size_t number, const std::string& line) {
      // Characters, not bytes: those that continue one in UTF-8 don't count.
      const auto columns =
          std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
      EXPECT_LE(columns, static_cast<long>(kColumnsMax)) << file.path << ":" << number;
      EXPECT_EQ(line.find('\t'), std::string::npos) << file.path << ":" << number << ": a tab";
    });
  }
}

TEST(Tidy, HeadersSayWhatTheyAre) {
  for (const File& file : files()) {
    if (!file.is_header) continue;
    EXPECT_TRUE(file.text.starts_with("//")) << file.path << " does not open with a comment";
    // Highway compiles *-inl.h once per target, with guards of its own.
    if (file.path.ends_with("-inl.h")) continue;
    EXPECT_NE(file.text.find("#pragma once\n"), std::string::npos) << file.path;
  }
}

TEST(Tidy, OnlyTheCommandReadsTheEnvironmentOrExits) {
  const std::regex pattern(
      R"((\b|_)(getenv|setenv|putenv)\b|\b(exit|_exit|_Exit|quick_exit)\s*\()");
  for (const File& file : files()) {
    if (!is_product(file) || kProcessFolders.contains(file.folder)) continue;
    forbid(file, file.code, pattern, "only src/cli reads the environment or exits");
  }
}

TEST(Tidy, OnlyFabricAndClusterOpenSockets) {
  const std::regex pattern(
      R"(<(sys/socket|sys/un|netinet/\w+|arpa/inet|netdb|httplib|openssl/ssl)\.h>|<asio|\bsocke[t]\s*\()");
  for (const File& file : files()) {
    if (!is_product(file) || kSocketFolders.contains(file.folder)) continue;
    forbid(file, file.code, pattern, "only fabric and cluster open sockets");
  }
}

TEST(Tidy, NothingIsLeftForLater) {
  // The brackets are there so that this file does not find itself.
  const std::regex pattern(R"(\b(TOD[O]|FIXM[E]|XX[X])\b|#if [0]\b)");
  for (const File& file : files()) forbid(file, file.text, pattern, "do it now, or open an issue");
}

TEST(Tidy, NoPathOfOneMachine) {
  const std::regex pattern(R"((^|[^\w./}~])/(wor[k]|hom[e]|roo[t]|User[s])/)");
  for (const File& file : files()) {
    forbid(file, file.text, pattern, "a path that other machines don't have");
  }
}

TEST(Tidy, RandomnessHasASeed) {
  const std::regex pattern(
      R"((^|[^:\w])s?rand\s*\(|\bstd::s?rand\b|\brandom_devic[e]\b|\btime\s*\(\s*(0|NULL|nullptr)\s*\)|)"
      R"(seed\w*\s*[=({].*\b(now|time)\s*\()");
  for (const File& file : files()) {
    forbid(file, file.code, pattern, "random numbers come from base/random.h, by a seed");
  }
}

TEST(Tidy, SkipsAreListedWithTheirReason) {
  const std::regex pattern(R"(\bGTEST_SKI[P]\b)");
  for (const File& file : files()) {
    if (!is_code(file)) continue;
    const auto count = std::distance(
        std::sregex_iterator(file.code.begin(), file.code.end(), pattern), std::sregex_iterator());
    const auto listed = kSkips.find(file.path);
    const size_t expected = listed == kSkips.end() ? 0 : listed->second.count;
    EXPECT_EQ(static_cast<size_t>(count), expected)
        << file.path << ": skipped tests are listed in tidy_test.cc with their reason";
  }
}

TEST(Tidy, TestsAreNeitherDisabledNorAsleep) {
  const std::regex pattern(R"(\bDISABLE[D]_|\bsleep_(for|until)\b|\b(u|nano)?slee[p]\s*\()");
  for (const File& file : files()) {
    if (!is_code(file) || !file.is_test) continue;
    forbid(file, file.code, pattern, "a test runs, and waits on a condition with a deadline");
  }
}

}  // namespace
