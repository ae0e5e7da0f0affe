// `starling launch`: programs of the user's own as workers.
#include <sys/stat.h>

#include "workers_testing.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(WorkersTest, ExampleHasTheSameWeightsAloneAndLaunched) {
  const std::string program =
      std::filesystem::path(STARLING_COMMAND).replace_filename("example_fashion_workers");
  Process alone({program, "--synthetic"}, {.folder = folder_.string()});
  ASSERT_EQ(alone.wait(), 0) << alone.error();
  EXPECT_THAT(alone.output(), HasSubstr("weights "));
  for (const char* fabric : {"shm", "tcp"}) {
    const Ended ended =
        done({"launch", "-n", "3", "--fabric", fabric, "--", program, "--synthetic"});
    EXPECT_EQ(ended.output, alone.output());
    EXPECT_THAT(ended.error, AllOf(HasSubstr("[worker 1] worker 1 of 3 is done\n"),
                                   HasSubstr("[worker 2] worker 2 of 3 is done\n")));
  }
}

TEST_F(WorkersTest, LinesOfWorkersAreMarkedAndWhole) {
  const Ended ended = done({"launch", "-n", "3", "--", "/bin/sh", "-c",
                            "echo out $STARLING_RANK; echo err >&2; printf 'no end'"});
  EXPECT_EQ(ended.output, "out 0\nno end");
  for (const char* line : {"[worker 1] out 1\n", "[worker 1] err\n", "[worker 1] no end\n",
                           "[worker 2] out 2\n", "[worker 2] err\n", "[worker 2] no end\n"}) {
    EXPECT_THAT(ended.error, HasSubstr(line));
  }
  EXPECT_THAT(ended.error, Not(HasSubstr("[worker 0]")));
}

TEST_F(WorkersTest, CodeOfTheOneThatFailedIsTheLaunchers) {
  for (const int rank : {0, 2}) {
    const std::string script = fmt::format("test $STARLING_RANK != {} || exit 7", rank);
    EXPECT_EQ(run({"launch", "-n", "3", "--", "/bin/sh", "-c", script}).code, 7);
  }
}

TEST_F(WorkersTest, ProgramThatIsNotThereIsSaidOnce) {
  const std::string error = refused(2, {"launch", "-n", "3", "--", "./nothing"});
  EXPECT_THAT(error, HasSubstr("./nothing can't be started: No such file or directory"));
  EXPECT_THAT(error, Not(HasSubstr("[worker")));
}

// A worker that does not notice the loss of another, and has a process of its own.
TEST_F(WorkersTest, WorkersThatGoOnAfterAFailureAreKilledWithAllTheyStarted) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);  // that nobody will write to
  const Ended ended = run({"launch", "-n", "2", "--", "/bin/sh", "-c",
                           "if [ $STARLING_RANK = 1 ]; then exit 7; fi; cat pipe; "
                           "echo never"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.error, HasSubstr("worker 0 has not ended"));
  EXPECT_THAT(ended.output, Not(HasSubstr("never")));
}

}  // namespace
}  // namespace starling
