#include "compare/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compare/chart.h"
#include "compare/compare_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The tags that are open where they should not be: empty when all is well.
std::string unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const size_t end = html.find('>', at);
    if (end == std::string::npos) return "a tag without an end";
    const bool closes = html[at + 1] == '/', alone = html[end - 1] == '/';
    const size_t begin = at + (closes ? 2 : 1);
    const std::string name = html.substr(begin, html.find_first_of(" \n/>", begin) - begin);
    if (alone || name == "!DOCTYPE" || name == "meta") continue;
    if (!closes) {
      open.push_back(name);
    } else if (open.empty() || open.back() != name) {
      return "</" + name + "> in " + (open.empty() ? "nothing" : open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : open.back() + " is not closed";
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

TEST(Page, IsWholeAndNeedsNothingElse) {
  const ComparePlan plan = made_up_plan("all", {{.workers = 2}, {.workers = 4, .slow = 4}}, 3);
  const std::string html = draw_page(summarize(plan, made_up_outcomes(plan)));
  EXPECT_EQ(unbalanced(html), "");
  for (const ComparedStrategy& strategy : all_strategies())
    EXPECT_GE(count_of(html, ">" + strategy.label() + "<"), 2u) << strategy.label();
  for (const char* text :
       {"2 workers", "4 workers, the last 4x slower", "Accuracy against time",
        "Accuracy against samples", "Accuracy against bytes", "Time to", "Where the time went",
        "Staleness", "Disagreement", "Figures", "without evaluation"})
    EXPECT_THAT(html, HasSubstr(text));
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("http")), Not(HasSubstr("src=")),
                          Not(HasSubstr("nan")), Not(HasSubstr("inf\""))));
}

TEST(Page, NamesAreEscaped) {
  ComparePlan plan = made_up_plan("all_reduce,local_sgd", {{.workers = 2}}, 2);
  plan.target = "</style><script>alert(1)</script>";
  plan.notes = {"a <note>"};
  Outcomes outcomes = made_up_outcomes(plan);
  outcomes[{0, 1}] = {std::nullopt, "<failed>"};
  const std::string html = draw_page(summarize(plan, outcomes));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("made &lt;up&gt; &amp; &quot;quoted&quot;"),
                          HasSubstr("a &lt;note&gt;"), HasSubstr("&lt;failed&gt;"),
                          Not(HasSubstr("<script"))));
}

TEST(Page, IsThereBeforeTheFirstTrialAndInBetween) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}, {.workers = 4}}, 2);
  const std::string empty = draw_page(summarize(plan, {}));
  EXPECT_EQ(unbalanced(empty), "");
  EXPECT_THAT(empty, AllOf(HasSubstr("nothing has been measured"), HasSubstr("6 still to come")));
  Outcomes some = made_up_outcomes(plan);
  std::erase_if(some,
                [](const auto& one) { return one.first != std::pair<size_t, uint64_t>(1, 1); });
  const std::string html = draw_page(summarize(plan, some));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("1 of 6 trials done"), HasSubstr("not sure")));
}

TEST(Page, RunsOfOneEpochAndOfNothingSentAreDrawn) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}}, 1);
  Outcomes outcomes = made_up_outcomes(plan);
  for (auto& [trial, outcome] : outcomes) {
    outcome.result->points.resize(1);
    outcome.result->points[0].bytes = 0;
    outcome.result->times = {};
  }
  const std::string html = draw_page(summarize(plan, outcomes));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_THAT(html, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("\"inf"))));
  EXPECT_THAT(html, Not(HasSubstr("Accuracy against bytes"))) << "there are none";
}

TEST(Page, SaysInWordsWhatColoursSay) {
  ComparePlan plan = made_up_plan("single,all_reduce,local_sgd",
                                  {{.workers = 2, .slow = 4}, {.workers = 4, .slow = 4}}, 3);
  plan.goal = 0.85;
  Outcomes outcomes = made_up_outcomes(plan);
  const std::string sure = draw_page(summarize(plan, outcomes));
  EXPECT_THAT(sure, HasSubstr("<strong>all_reduce</strong> <span class=\"badge\">sure</span>"));
  EXPECT_THAT(sure, HasSubstr("<td>single (reference)</td>"));
  outcomes.erase({1, 3});
  outcomes[{2, 1}].result->over_budget = true;
  const std::string html = draw_page(summarize(plan, outcomes));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_THAT(html, HasSubstr("<strong>all_reduce</strong> <span class=\"badge\">not sure</span>"));
  EXPECT_THAT(html, HasSubstr("local_sgd: its first epoch took longer than the budget (1 of 3"));
}

TEST(Page, ABudgetThatIsTooSmallForAllHasNoPictures) {
  const ComparePlan plan = made_up_plan("single,all_reduce", {{.workers = 2}}, 1);
  Outcomes outcomes = made_up_outcomes(plan);
  for (auto& [trial, outcome] : outcomes) outcome.result->over_budget = true;
  const std::string html = draw_page(summarize(plan, outcomes));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_THAT(html, AllOf(HasSubstr("no strategy has an epoch within the budget"),
                          HasSubstr("single: its first epoch took longer than the budget"),
                          Not(HasSubstr("class=\"chart\""))));
}

TEST(Page, LinesOfManyStrategiesLookDifferent) {
  const ComparePlan plan = made_up_plan(
      "single,local_sgd:period=1/2/3/4/5/6/7:beta=0.1/0.2/0.3/0.4", {{.workers = 2}}, 1);
  const std::string html = draw_page(summarize(plan, made_up_outcomes(plan)));
  std::set<std::string> looks;
  constexpr const char* kLine = "<polyline class=\"line ";
  for (size_t at = html.find(kLine); at != std::string::npos; at = html.find(kLine, at + 1))
    looks.insert(html.substr(at, html.find("points", at) - at));
  EXPECT_EQ(looks.size(), 29u);
  for (const char* dash : {".line.d1", ".line.d2", ".line.d3"}) EXPECT_THAT(html, HasSubstr(dash));
}

TEST(Chart, LongLabelsAreClippedAtWholeCharacters) {
  EXPECT_EQ(clipped("short", 100), "short");
  const std::string clipped_text = clipped("ääääääääääääääääääää", 60);
  EXPECT_EQ(clipped_text, "äääääää…");
  EXPECT_LE(text_width(clipped_text), 60);
}

}  // namespace
}  // namespace starling
