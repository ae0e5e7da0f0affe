// docs/job.md against the tables of fields: neither may have what the other lacks, and types and
// defaults are the same. A failure prints the row as it should be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "job/job_build.h"
#include "job/job_fields.h"

namespace starling {
namespace {

// "| `key` | type | default |" by heading and key.
using Rows = std::map<std::pair<std::string, std::string>, std::string>;

const std::string kTop = "Top level", kEveryLayer = "Every layer";

std::string in_code(const std::string& text) {
  return text == "–" || text == "required" ? text : fmt::format("`{}`", text);
}

template <typename Field, typename Owner>
std::string row_of(const Field& field, const std::string& default_value) {
  Owner owner;
  return fmt::format("| `{}` | {} | {} |", field.key,
                     type_text(field.slot(owner), field.range, field.choices),
                     in_code(default_value));
}

Rows expected_rows() {
  Rows rows;
  for (const Section& section : job_sections()) {
    const std::string heading = section.path.empty() ? kTop : fmt::format("`[{}]`", section.path);
    for (const JobField& field : section.fields) {
      rows[{heading, std::string(field.key)}] = row_of<JobField, Job>(field, default_text(field));
    }
  }
  for (const LayerType& type : layer_types()) {
    for (size_t i = 0; i < type.fields.size(); ++i) {
      const LayerField& field = type.fields[i];
      // What is the same for all is documented once.
      const std::string heading =
          i < kCommonLayerFields ? kEveryLayer : fmt::format("`{}`", type.name);
      rows[{heading, std::string(field.key)}] =
          row_of<LayerField, LayerJob>(field, default_text(type, field));
    }
  }
  return rows;
}

struct Documentation {
  Rows rows;
  std::vector<std::string> headings;
  std::vector<std::string> examples;  // blocks of TOML
};

Documentation read_documentation() {
  std::ifstream file(STARLING_SOURCE_DIR "/docs/job.md");
  EXPECT_TRUE(file.is_open());
  Documentation documentation;
  std::string heading;
  const std::regex row(R"((\| `(\w+)` \| .* \| .* \|) (.+) \|)");
  bool in_example = false;
  for (std::string line; std::getline(file, line);) {
    std::smatch match;
    if (in_example) {
      in_example = line != "```";
      if (in_example) documentation.examples.back() += line + "\n";
    } else if (line == "```toml") {
      in_example = true;
      documentation.examples.emplace_back();
    } else if (line.starts_with("## ") || line.starts_with("### ")) {
      heading = line.substr(line.find(' ') + 1);
      documentation.headings.push_back(heading);
    } else if (std::regex_match(line, match, row)) {
      const bool is_new = documentation.rows.try_emplace({heading, match[2]}, match[1]).second;
      EXPECT_TRUE(is_new) << heading << " documents " << match[2] << " twice";
    }
  }
  return documentation;
}

TEST(JobDocs, DocumentsEveryFieldWithItsTypeAndDefault) {
  const Rows found = read_documentation().rows;
  for (const auto& [key, row] : expected_rows()) {
    const auto place = found.find(key);
    if (place == found.end()) {
      ADD_FAILURE() << "docs/job.md lacks, under " << key.first << ":\n" << row << " … |";
    } else {
      EXPECT_EQ(place->second, row) << "under " << key.first;
    }
  }
}

TEST(JobDocs, DocumentsNoFieldThatDoesNotExist) {
  const Rows expected = expected_rows();
  for (const auto& [key, row] : read_documentation().rows) {
    EXPECT_TRUE(expected.contains(key)) << "docs/job.md has, under " << key.first << ":\n" << row;
  }
}

TEST(JobDocs, HasAHeadingForEverySectionAndLayer) {
  const std::vector<std::string> headings = read_documentation().headings;
  const auto count = [&](const std::string& heading) {
    return std::count(headings.begin(), headings.end(), heading);
  };
  for (const Section& section : job_sections()) {
    if (section.path.empty()) continue;
    EXPECT_EQ(count(fmt::format("`[{}]`", section.path)), 1) << section.path;
  }
  for (const LayerType& type : layer_types())
    EXPECT_EQ(count(fmt::format("`{}`", type.name)), 1) << type.name;
}

TEST(JobDocs, ExamplesAreRight) {
  const std::vector<std::string> examples = read_documentation().examples;
  ASSERT_GE(examples.size(), 4u);
  for (std::string example : examples) {
    if (example.find("layers") == std::string::npos) {
      example += "\n[[model.layers]]\ntype = \"dense\"\nunits = 10\n";
    }
    EXPECT_NO_THROW(parse_job(example, "example")) << example;
  }
  const Job whole = parse_job(examples[0], "example");
  EXPECT_EQ(build_model(whole, input_shape(whole)).output_shape(), (Shape{10}));
}

TEST(JobExamples, AllAreJobsWhoseModelsFit) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(STARLING_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    const Job job = load_job(entry.path());
    EXPECT_EQ(build_model(job, input_shape(job)).output_shape(), (Shape{10})) << entry.path();
    EXPECT_EQ(job.name, entry.path().stem().string());
    EXPECT_NO_THROW(trainer_options(job)) << entry.path();
    ++count;
  }
  EXPECT_GE(count, 3);
}

}  // namespace
}  // namespace starling
