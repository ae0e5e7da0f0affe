// A worker that dies inside a collective operation, with real processes over each fabric: all
// others end soon, each with an error that says in which operation and step, whom it waited for,
// and how many bytes it had.
#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

struct Operation {
  const char* fabric;
  const char* name;
};
void PrintTo(const Operation& operation, std::ostream* out) {
  *out << operation.fabric << " " << operation.name;
}

class WorkersKilled : public WorkersTest, public testing::WithParamInterface<Operation> {
 protected:
  static constexpr int kWorkers = 4;  // as halving and doubling needs

  // Worker 1 dies at this call of the fabric (dying_worker.cc); at none if it is 0.
  Ended run_with_death_at(int call) const {
    const std::string program =
        std::filesystem::path(STARLING_COMMAND).replace_filename("dying_worker");
    return run({"launch", "-n", fmt::format("{}", kWorkers), "--fabric", GetParam().fabric, "--",
                program, GetParam().name, fmt::format("{}", call)});
  }

  // The line that begins so; empty if there is none.
  static std::string line_of(const std::string& text, const std::string& begin) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(begin)) return line;
    }
    return "";
  }
};

TEST_P(WorkersKilled, IsToldByAllOthers) {
  for (const int call : {1, 2, 12}) {
    if (call == 12 && GetParam().name == std::string("barrier")) continue;  // has not so many
    SCOPED_TRACE(call);
    const auto begin = Process::Clock::now();
    const Ended ended = run_with_death_at(call);
    EXPECT_LT(Process::Clock::now() - begin, kSoon);
    EXPECT_EQ(ended.code, 1);
    EXPECT_THAT(ended.error, AllOf(HasSubstr("error: worker 1 was ended by signal 9"),
                                   HasSubstr("peer 1 "), Not(HasSubstr("has not ended"))));
    for (const int rank : {0, 2, 3}) {
      const std::string begins = fmt::format(
          "{}error: {} step=", rank == 0 ? "" : fmt::format("[worker {}] ", rank), GetParam().name);
      EXPECT_THAT(line_of(ended.error, begins),
                  ContainsRegex(fmt::format("step=[0-9]+ rank={}: .*peer [0-9].* bytes", rank)))
          << ended.error;
    }
    expect_nothing_left({});
  }
}

// Only then do the deaths say anything.
TEST_P(WorkersKilled, IsWhatEndsTheOperation) {
  const Ended ended = run_with_death_at(0);
  EXPECT_EQ(ended.code, 7) << ended.error;
  EXPECT_THAT(ended.error, MatchesRegex("error: worker [0-3] ended with exit code 7\n"));
}

std::vector<Operation> operations() {
  std::vector<Operation> all = {{"shm", "all_reduce_shared"}};
  for (const char* fabric : {"shm", "tcp"}) {
    for (const char* name : {"all_reduce_direct", "all_reduce_halving_doubling", "all_reduce_ring",
                             "reduce_scatter", "all_gather", "broadcast", "gather", "barrier"}) {
      all.push_back({fabric, name});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(In, WorkersKilled, testing::ValuesIn(operations()), [](const auto& test) {
  return fmt::format("{}_{}", test.param.fabric, test.param.name);
});

}  // namespace
}  // namespace starling
