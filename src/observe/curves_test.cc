#include "observe/curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/atomic_file_testing.h"
#include "base/read_file.h"
#include "observe/curves_axis.h"

namespace starling {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Why `text` is not well-formed XML of the kind we write, or nothing: tags close in order,
// attributes are quoted, and no stray '<', '&' or control character is left.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  size_t i = 0;
  bool seen_root = false;
  while (i < text.size()) {
    if (text[i] == '&') {
      const size_t end = text.find(';', i);
      if (end == std::string::npos || end - i > 6) return "a stray '&'";
    }
    if (static_cast<unsigned char>(text[i]) < 0x20 && text[i] != '\n') return "a control character";
    if (text[i] != '<') {
      if (open.empty() && text[i] != '\n') return "text outside the root";
      ++i;
      continue;
    }
    const size_t end = text.find('>', i);
    if (end == std::string::npos) return "a tag without end";
    std::string tag = text.substr(i + 1, end - i - 1);
    i = end + 1;
    if (tag.find('<') != std::string::npos) return "a stray '<'";
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "an open attribute: " + tag;
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return "closes what is not open: " + tag;
      open.pop_back();
      continue;
    }
    if (open.empty() && seen_root) return "a second root";
    seen_root = true;
    if (!tag.ends_with('/')) open.push_back(tag.substr(0, tag.find(' ')));
  }
  return open.empty() ? "" : "never closed: " + open.back();
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

History history_of(int epochs) {
  History history;
  for (int e = 1; e <= epochs; ++e) {
    history.append({static_cast<uint32_t>(e),
                    static_cast<uint64_t>(e),
                    1,
                    {{"train_loss", 1.0 / e},
                     {"val_loss", 1.1 / e},
                     {"val_accuracy", 1 - 0.5 / e},
                     {"learning_rate", 0.001}}});
  }
  return history;
}

TEST(Curves, HoldEverySeriesInBothPanels) {
  const std::string svg = draw_curves(history_of(3), {"fashion_cnn", "2 lanes"});
  EXPECT_EQ(xml_fault(svg), "");
  for (const char* part : {"fashion_cnn", "2 lanes", "Loss", "Accuracy", "train", "validation",
                           "0.3333", "0.3667", "83.33%", "epoch"}) {
    EXPECT_THAT(svg, HasSubstr(part));
  }
  EXPECT_EQ(count_of(svg, "<path "), 3u);
  EXPECT_EQ(count_of(svg, "<circle "), 9u);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(Curves, WithoutAccuracyHaveOnePanel) {
  History history;
  history.append({1, 1, 1, {{"train_loss", 1}}});
  const std::string svg = draw_curves(history);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, Not(HasSubstr("Accuracy")));
}

TEST(Curves, AreWellFormedForAnyHistory) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double huge = std::numeric_limits<double>::max();
  EXPECT_EQ(xml_fault(draw_curves({})), "");
  for (const std::vector<double>& losses :
       std::vector<std::vector<double>>{{std::nan(""), infinity, -infinity},
                                        {huge, -huge, 0},
                                        {5e-324, huge, 1},
                                        {0, 0, 0},
                                        {1e-12, 1e6, 1},
                                        {-3, 0, 3},
                                        {1, std::nan(""), 2}}) {
    History history;
    uint32_t epoch = 0;
    for (const double loss : losses) history.append({++epoch, 1, 1, {{"train_loss", loss}}});
    const std::string svg = draw_curves(history, {"<a> & \"b\"\x1b\n", ""});
    EXPECT_EQ(xml_fault(svg), "");
    EXPECT_THAT(svg, Not(HasSubstr("nan")));
    EXPECT_THAT(svg, Not(HasSubstr("inf")));
  }
}

TEST(Curves, HaveAGapWhereAValueIsMissing) {
  History history;
  for (const double loss : {1.0, 2.0, std::nan(""), 3.0, 2.0}) {
    history.append({static_cast<uint32_t>(history.size() + 1), 1, 1, {{"train_loss", loss}}});
  }
  const std::string svg = draw_curves(history);
  const size_t path = svg.find("d=\"M");
  EXPECT_EQ(count_of(svg.substr(path, svg.find('"', path + 3) - path), "M"), 2u);
}

TEST(Curves, ManySeriesLeaveTheirValuesOutOfTheLegend) {
  History history;
  EpochRecord record{1, 1, 1, {{"val_accuracy", 0.5}}};
  for (int i = 0; i < 5; ++i)
    record.values.emplace_back("class_" + std::to_string(i) + "_accuracy", 0.25);
  history.append(record);
  const std::string svg = draw_curves(history);
  EXPECT_EQ(xml_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("class 4"));
}

TEST(Curves, AreWrittenToAFile) {
  const TemporaryFolder folder;
  write_curves(history_of(100), folder.path() / "curves.svg");
  const std::string svg = read_text(folder.path() / "curves.svg", 1 << 20);
  EXPECT_EQ(svg, draw_curves(history_of(100)));
  EXPECT_EQ(count_of(svg, "<circle "), 3u);  // only the last of each
}

TEST(Axis, TicksAreRound) {
  const Axis loss = value_axis(std::vector<double>{0.22, 0.41}, false);
  EXPECT_EQ(loss.label(loss.ticks.front(), false), "0.20");
  EXPECT_EQ(loss.label(loss.ticks.back(), false), "0.45");
  const Axis accuracy = value_axis(std::vector<double>{0.1, 0.995}, true);
  EXPECT_EQ(accuracy.label(accuracy.ticks.back(), true), "100%");
  EXPECT_EQ(accuracy.label(accuracy.ticks.front(), true), "0%");
  EXPECT_THAT(epoch_axis(std::vector<double>{1, 2, 3}).ticks, ElementsAre(1, 2, 3));
  EXPECT_EQ(epoch_axis(std::vector<double>{1, 5000}).ticks.size(), 10u);
}

TEST(Axis, IsLogarithmicAcrossOrdersOfMagnitude) {
  const Axis axis = value_axis(std::vector<double>{0.02, 40}, false);
  EXPECT_TRUE(axis.logarithmic);
  EXPECT_THAT(axis.ticks, ElementsAre(0.01, 0.1, 1, 10, 100));
  EXPECT_EQ(axis.label(axis.ticks[0], false), "0.01");
  EXPECT_DOUBLE_EQ(axis.position(1), 0.5);
  EXPECT_FALSE(value_axis(std::vector<double>{0, 40}, false).logarithmic);
}

}  // namespace
}  // namespace starling
