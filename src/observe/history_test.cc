#include "starling/history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "base/atomic_file_testing.h"
#include "base/json.h"
#include "base/read_file.h"
#include "observe/history_json.h"
#include "starling/error.h"

namespace starling {
namespace {

History two_epochs() {
  History history;
  history.append(
      {1, 938, 1.0 / 3, {{"train_loss", 0.1 + 0.2}, {"val_accuracy", 5e-324}}, 60000, 0.25, 4096});
  history.append({2,
                  1876,
                  1e22,
                  {{"train_loss", -0.0}, {"a,\"b\"", 1.7976931348623157e308}},
                  120000,
                  1e21,
                  0});
  return history;
}

TEST(History, ColumnsHoldNanWhereAnEpochLacksTheValue) {
  const History history = two_epochs();
  EXPECT_EQ(history.names(), (std::vector<std::string>{"train_loss", "val_accuracy", "a,\"b\""}));
  EXPECT_EQ(history.column("train_loss"), (std::vector<double>{0.1 + 0.2, -0.0}));
  EXPECT_EQ(history.column("step"), (std::vector<double>{938, 1876}));
  EXPECT_EQ(history.column("samples"), (std::vector<double>{60000, 120000}));
  EXPECT_EQ(history.column("train_seconds"), (std::vector<double>{0.25, 1e21}));
  EXPECT_EQ(history.column("bytes_sent"), (std::vector<double>{4096, 0}));
  EXPECT_TRUE(std::isnan(history.column("val_accuracy")[1]));
  EXPECT_TRUE(std::isnan(history.column("none")[0]));
}

TEST(History, CsvIsReadBackExactly) {
  const TemporaryFolder folder;
  two_epochs().write_csv(folder.path() / "history.csv");
  std::istringstream csv(read_text(folder.path() / "history.csv", 10000));
  std::string line;
  std::getline(csv, line);
  EXPECT_EQ(line,
            "epoch,step,seconds,samples,train_seconds,bytes_sent,train_loss,val_accuracy,\"a,"
            "\"\"b\"\"\"");
  std::getline(csv, line);
  EXPECT_EQ(line, "1,938,0.3333333333333333,60000,0.25,4096,0.30000000000000004,5e-324,");
  EXPECT_EQ(std::strtod(line.c_str() + line.find("0.300"), nullptr), 0.1 + 0.2);
  std::getline(csv, line);
  EXPECT_EQ(line, "2,1876,1e+22,120000,1e+21,0,-0,,1.7976931348623157e+308");
  EXPECT_FALSE(std::getline(csv, line));
  EXPECT_EQ(History().to_csv(), "epoch,step,seconds,samples,train_seconds,bytes_sent\n");
}

TEST(History, JsonTextIsReadBackExactly) {
  const History history = two_epochs();
  const std::string text = to_text(history_to_json(history));
  const History read = history_from_json(parse_json(text));
  EXPECT_EQ(read, history);
  EXPECT_TRUE(std::signbit(read.column("train_loss")[1]));
}

TEST(History, JsonKeepsWhatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  History history;
  history.append({1, 1, 0, {{"a", std::nan("")}, {"b", infinity}, {"c", -infinity}}});
  const std::string text = to_text(history_to_json(history));
  const History read = history_from_json(parse_json(text));
  EXPECT_TRUE(std::isnan(read.column("a")[0]));
  EXPECT_EQ(read.column("b")[0], infinity);
  EXPECT_EQ(read.column("c")[0], -infinity);
}

TEST(History, RefusesJsonThatIsNoHistory) {
  for (const char* text :
       {"{}", "[1]", "[{}]", R"([{"epoch":-1,"step":1,"seconds":0,"values":[]}])",
        R"([{"epoch":4294967296,"step":1,"seconds":0,"values":[]}])",
        R"([{"epoch":1,"step":1.5,"seconds":0,"values":[]}])",
        R"([{"epoch":1,"step":1,"seconds":"x","values":[]}])",
        R"([{"epoch":1,"step":1,"seconds":0,"values":{}}])",
        R"([{"epoch":1,"step":1,"seconds":0,"values":[["a"]]}])",
        R"([{"epoch":1,"step":1,"seconds":0,"values":[[1,2]]}])"}) {
    EXPECT_THROW(history_from_json(parse_json(text)), Error) << text;
  }
}

}  // namespace
}  // namespace starling
