// The page of a comparison in a real browser, Chromium: it is opened in windows of several widths,
// a script looks for texts that are cut off or lie over one another, and its picture is looked at.
#include <map>

#include "command_testing.h"
#include "compare/compare_testing.h"
#include "compare/page.h"
#include "observe/markup.h"
#include "png.h"

namespace starling {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kBrowser = "/usr/bin/chromium";  // of the package chromium

// Writes what it finds wrong, a line each, and how much it has looked at.
constexpr const char* kLook = R"JS(
function look(frame) {
  const page = frame.contentDocument, found = [], where = 'at ' + frame.width + ': ';
  const say = text => found.push('WRONG ' + where + text);
  const root = page.documentElement;
  if (root.scrollWidth > root.clientWidth) say('the page is wider than its window');
  const charts = [...page.querySelectorAll('svg.chart')];
  let texts = 0;
  for (const chart of charts) {
    const name = chart.getAttribute('aria-label'), box = chart.viewBox.baseVal;
    const drawn = chart.getBoundingClientRect();
    if (drawn.width < 250 || drawn.right > root.clientWidth) say(name + ' is ' + drawn.width + ' wide');
    const boxes = [...chart.querySelectorAll('text')].map(one => ({text: one.textContent, at: one.getBBox()}));
    texts += boxes.length;
    for (const {text, at} of boxes) {
      const inside = at.x > -0.5 && at.y > -0.5 && at.x + at.width < box.width + 0.5 &&
                     at.y + at.height < box.height + 0.5;
      if (at.width <= 0 || !inside) say(name + ': "' + text + '" is cut off');
    }
    for (const [i, a] of boxes.entries()) for (const b of boxes.slice(i + 1)) {
      const apart = a.at.x + a.at.width <= b.at.x || b.at.x + b.at.width <= a.at.x ||
                    a.at.y + 0.8 * a.at.height <= b.at.y || b.at.y + 0.8 * b.at.height <= a.at.y;
      if (!apart) say(name + ': "' + a.text + '" lies over "' + b.text + '"');
    }
    for (const mark of chart.querySelectorAll('.line, .bar, rect')) {
      const style = frame.contentWindow.getComputedStyle(mark);
      const paint = mark.matches('.line') ? style.stroke : style.fill;
      if (!/^(rgb|color)/.test(paint)) say(name + ' has a mark without a colour: ' + paint);
    }
  }
  const cards = [...page.querySelectorAll('.card')].map(card => card.getBoundingClientRect());
  for (const [i, a] of cards.entries()) for (const b of cards.slice(i + 1)) {
    const apart = a.left > b.right - 1 || b.left > a.right - 1 || a.top > b.bottom - 1 || b.top > a.bottom - 1;
    if (!apart) say('two cards overlap');
  }
  found.push('looked ' + where + charts.length + ' charts, ' + texts + ' texts');
  return found;
}
window.onload = () => {
  const found = [...document.querySelectorAll('iframe')].flatMap(look);
  document.getElementById('found').textContent = found.join('\n') + '\ndone';
};
)JS";

class ComparePageTest : public CommandTest {
 protected:
  // What the browser writes to standard output.
  std::string browse(const std::vector<std::string>& more, const std::string& file) const {
    std::vector<std::string> words = {kBrowser,
                                      "--headless=new",
                                      "--no-sandbox",
                                      "--disable-gpu",
                                      "--disable-dev-shm-usage",
                                      "--no-first-run",
                                      "--hide-scrollbars",
                                      "--user-data-dir=" + (folder_ / "profile").string()};
    words.insert(words.end(), more.begin(), more.end());
    words.push_back("file://" + (folder_ / file).string());
    EXPECT_TRUE(std::filesystem::exists(kBrowser)) << "run tools/install_packages build";
    Process browser(words, {.folder = folder_.string(), .variables = {"HOME=" + folder_.string()}});
    EXPECT_EQ(browser.wait(), 0) << browser.error();
    return browser.output();
  }

  // What the script finds in windows of these widths.
  std::string look(const std::string& page) const {
    std::string html = "<!DOCTYPE html><meta charset=utf-8><pre id=found></pre><script>";
    html += std::string(kLook) + "</script>\n";
    for (const int width : {400, 700, 1000, 1400})
      html += fmt::format("<iframe width={} height=900 srcdoc=\"{}\"></iframe>\n", width,
                          escaped(page));
    write("look.html", html);
    const std::string dom = browse({"--virtual-time-budget=20000", "--dump-dom"}, "look.html");
    const size_t begin = dom.find("<pre id=\"found\">"), end = dom.find("</pre>", begin);
    EXPECT_NE(begin, std::string::npos);
    return begin == std::string::npos ? "" : dom.substr(begin, end - begin);
  }

  Picture picture(const std::string& page, int width, const std::string& scheme) const {
    write("page.html", page);
    browse({fmt::format("--window-size={},1600", width),
            "--blink-settings=preferredColorScheme=" + scheme, "--screenshot=shot.png"},
           "page.html");
    return read_png(read("shot.png"));
  }

  static std::map<uint32_t, size_t> colors(const Picture& picture) {
    std::map<uint32_t, size_t> counts;
    for (const uint32_t pixel : picture.pixels) ++counts[pixel];
    return counts;
  }
};

Summary whole_summary() {
  ComparePlan plan = made_up_plan(
      "all,local_sgd:period=16/32:nesterov:kept:beta=0.5,all_reduce:speed:overlap=false",
      {{.workers = 2}, {.workers = 16, .slow = 2.5, .link_rate = "100mbit", .link_delay = "5ms"}},
      3);
  plan.notes = {"a note"};
  return summarize(plan, made_up_outcomes(plan));
}

TEST_F(ComparePageTest, NothingIsCutOffOrLiesOverAnother) {
  const std::string found = look(draw_page(whole_summary()));
  EXPECT_THAT(found, Not(HasSubstr("WRONG"))) << found;
  for (const int width : {400, 700, 1000, 1400})
    EXPECT_THAT(found, HasSubstr(fmt::format("looked at {}: 14 charts", width))) << found;
  EXPECT_THAT(found, HasSubstr("\ndone"));
}

// Figures from a thousandth to a million of what they were, one seed, and trials to come.
TEST_F(ComparePageTest, FiguresOfAllSizesFit) {
  for (const double scale : {1e-5, 1.0, 1e6}) {
    const ComparePlan plan = made_up_plan("all", {{.workers = 4}}, 2);
    Outcomes outcomes = made_up_outcomes(plan);
    for (auto& [trial, outcome] : outcomes) {
      for (TrialPoint& point : outcome.result->points) {
        point.seconds *= scale;
        point.samples *= scale < 1 ? 0.001 : scale;
        point.bytes *= scale;
        point.accuracy = trial.first == 3 ? 0.1 * point.accuracy : point.accuracy;
      }
      for (double* part : {&outcome.result->times.input, &outcome.result->times.compute,
                           &outcome.result->times.communication, &outcome.result->times.waiting})
        *part *= scale;
    }
    std::erase_if(outcomes, [](const auto& one) { return one.first.second == 2; });
    const std::string found = look(draw_page(summarize(plan, outcomes)));
    EXPECT_THAT(found, Not(HasSubstr("WRONG"))) << scale << found;
    EXPECT_THAT(found, HasSubstr("\ndone")) << scale;
  }
}

TEST_F(ComparePageTest, ThePictureShowsTheStrategiesInLightAndDark) {
  const std::string page = draw_page(whole_summary());
  struct Scheme {
    const char* setting;
    uint32_t card, first, second;  // colours of the style sheet
  };
  for (const Scheme& scheme :
       {Scheme{"1", 0xffffff, 0x0072b2, 0xd55e00}, Scheme{"0", 0x1d2128, 0x4aa8e0, 0xf08a4b}}) {
    const Picture shot = picture(page, 1400, scheme.setting);
    EXPECT_EQ(shot.width, 1400u);
    const auto counts = colors(shot);
    const auto count = [&](uint32_t color) {
      return counts.contains(color) ? counts.at(color) : 0;
    };
    EXPECT_GT(counts.size(), 200u) << "lines and letters have soft edges";
    EXPECT_GT(count(scheme.card), shot.pixels.size() / 4);
    EXPECT_GT(count(scheme.first), 2000u);
    EXPECT_GT(count(scheme.second), 2000u);
  }
}

TEST_F(ComparePageTest, APageWithNothingYetFits) {
  const ComparePlan plan = made_up_plan("all", {{.workers = 2}}, 3);
  const std::string found = look(draw_page(summarize(plan, {})));
  EXPECT_THAT(found, Not(HasSubstr("WRONG"))) << found;
  EXPECT_THAT(found, HasSubstr("looked at 400: 0 charts"));
}

}  // namespace
}  // namespace starling
