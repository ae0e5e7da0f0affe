// The starling command as its users meet it: real processes on small synthetic jobs.
#include <random>

#include "command_testing.h"
#include "seeds.h"
#include "starling/data.h"

namespace starling {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

TEST_F(CommandTest, TrainWritesEveryFileOfARun) {
  write_cnn_job();
  const Ended ended = done({"train", "cnn.toml"});
  for (const char* file :
       {"job.toml", "report.json", "history.csv", "curves.svg", "log.txt", "ledger.jsonl",
        "best.safetensors", "model.safetensors", "checkpoints"}) {
    EXPECT_TRUE(exists(std::string("runs/cnn/") + file)) << file;
  }
  EXPECT_THAT(ended.output,
              AllOf(HasSubstr("test accuracy"), HasSubstr("samples/s"), HasSubstr("runs/cnn")));
  EXPECT_THAT(ended.error, HasSubstr("epoch 3/3"));
  EXPECT_EQ(std::count(ended.error.begin(), ended.error.end(), '\n'), 3)
      << "one line per epoch when it is no terminal";
  EXPECT_THAT(read("runs/cnn/curves.svg"), HasSubstr("<svg"));
  const std::string history = read("runs/cnn/history.csv");
  EXPECT_EQ(std::count(history.begin(), history.end(), '\n'), 4);
}

TEST_F(CommandTest, ReportHasEveryFigure) {
  write_cnn_job();
  done({"train", "cnn.toml", "--lanes", "2", "--no-progress"});
  const nlohmann::json json = report("runs/cnn");
  EXPECT_EQ(json.at("strategy"), "single");
  EXPECT_EQ(json.at("workers"), 1);
  EXPECT_EQ(json.at("lanes"), 2);
  EXPECT_EQ(json.at("shards"), 3);
  EXPECT_EQ(json.at("exact"), true);
  EXPECT_EQ(json.at("steps"), 15);
  EXPECT_EQ(json.at("samples"), 270);
  EXPECT_EQ(json.at("samples_unique"), 270);
  EXPECT_EQ(json.at("samples_duplicated"), 0);
  EXPECT_EQ(json.at("samples_missing"), 0);
  EXPECT_EQ(json.at("bytes_sent"), 0);
  EXPECT_GT(json.at("wall_s"), 0);
  EXPECT_GT(json.at("samples_per_s"), 0);
  EXPECT_GT(json.at("train_loss"), 0);
  EXPECT_GT(json.at("test_loss"), 0);
  EXPECT_GE(json.at("test_accuracy"), 0);
  EXPECT_EQ(json.at("weights_sha256").get<std::string>().size(), 64u);
  EXPECT_FALSE(json.at("version").get<std::string>().empty());
}

TEST_F(CommandTest, EvalReproducesTheTestOfTheRun) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const nlohmann::json json = report("runs/cnn");
  const std::string accuracy =
      fmt::format("test_accuracy    {:.6f}", json.at("test_accuracy").get<double>());
  const std::string loss =
      fmt::format("test_loss        {:.6f}", json.at("test_loss").get<double>());
  EXPECT_THAT(done({"eval", "runs/cnn"}).output, AllOf(HasSubstr(accuracy), HasSubstr(loss)));
  EXPECT_THAT(done({"eval", "cnn.toml"}).output, HasSubstr(loss))
      << "a job file stands for its run";
  EXPECT_THAT(done({"eval", "cnn.toml", "--weights", "runs/cnn/model.safetensors"}).output,
              HasSubstr(loss));
  std::filesystem::remove(folder_ / "runs/cnn/model.safetensors");
  EXPECT_THAT(done({"eval", "runs/cnn"}).output, AllOf(HasSubstr("checkpoints"), HasSubstr(loss)));
}

// A run that was resumed and stopped has a model from before that.
TEST_F(CommandTest, TheNewestWeightsAreUsed) {
  write_cnn_job();
  done({"train", "cnn.toml", "--run-dir", "run", "--set", "training.epochs=2"});
  EXPECT_THAT(done({"eval", "run"}).output, HasSubstr("run/model.safetensors"));
  Process process =
      start({"train", "cnn.toml", "--run-dir", "run", "--resume", "--set", "training.epochs=1000"});
  ASSERT_TRUE(process.wait_for_line("epoch 3/")) << process.error();
  process.signal(SIGTERM);
  ASSERT_EQ(process.wait(), 75) << process.error();
  EXPECT_THAT(
      done({"eval", "run"}).output,
      HasSubstr(fmt::format("checkpoints/step-{:08}", report("run").at("steps").get<int>())));
}

TEST_F(CommandTest, OneWorkerIsRefusedWhatManyAre) {
  write_cnn_job();
  for (const char* setting :
       {"strategy.servers=2", "strategy.min_workers=3", "strategy.consistency=async"}) {
    EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", setting}), HasSubstr("strategy"))
        << setting;
  }
  done({"train", "cnn.toml", "--set", "strategy.link_rate=1gbit", "--set", "strategy.fabric=tcp"});
  EXPECT_FALSE(report("runs/cnn").contains("link_rate"));
}

TEST_F(CommandTest, TheEnvironmentCapsTheInstructionSet) {
  write_cnn_job();
  done({"train", "cnn.toml", "--set", "isa=sse4", "--run-dir", "by_job"});
  variables_ = {"STARLING_ISA=sse4"};
  done({"train", "cnn.toml", "--workers", "2", "--run-dir", "by_variable"});
  EXPECT_EQ(report("by_variable").at("isa"), "sse4");
  EXPECT_EQ(hash("by_variable"), hash("by_job"));
  // The lesser of the two.
  EXPECT_THAT(done({"describe", "cnn.toml", "--set", "isa=avx2"}).output, HasSubstr("sse4"));
  variables_ = {"STARLING_ISA=avx2"};
  EXPECT_THAT(done({"describe", "cnn.toml", "--set", "isa=sse4"}).output, HasSubstr("sse4"));
  variables_ = {"STARLING_ISA=mmx"};
  EXPECT_THAT(refused(2, {"describe", "cnn.toml"}), HasSubstr("STARLING_ISA"));
}

TEST_F(CommandTest, JobOfTheRunRepeatsIt) {
  write_cnn_job();
  done({"train", "cnn.toml", "--set", "training.epochs=2", "--seed", "5"});
  done({"train", "runs/cnn/job.toml", "--run-dir", "again"});
  EXPECT_EQ(hash("runs/cnn"), hash("again"));
  EXPECT_EQ(report("again").at("seed"), 5);
}

TEST_F(CommandTest, LanesDoNotChangeTheWeights) {
  write_cnn_job();
  for (const char* lanes : {"1", "2", "3"}) {
    done({"train", "cnn.toml", "--lanes", lanes, "--run-dir", lanes});
    EXPECT_EQ(report(lanes).at("lanes"), std::stoi(lanes));
    EXPECT_EQ(hash(lanes), hash("1"));
  }
  done({"train", "cnn.toml", "--seed", "2", "--run-dir", "other"});
  EXPECT_NE(hash("other"), hash("1"));
}

TEST_F(CommandTest, ResumeAfterSigtermGivesTheSameWeights) {
  write_cnn_job();
  constexpr int kEpochs = 60;
  const std::string epochs = fmt::format("training.epochs={}", kEpochs);
  done({"train", "cnn.toml", "--set", epochs, "--run-dir", "whole"});
  constexpr unsigned seed = 20261115;  // where it stops within the epoch differs from run to run
  std::mt19937 random(seed);
  for (uint64_t attempt = 0; attempt < seed_count(3); ++attempt) {
    const std::string run = fmt::format("stopped{}", attempt);
    std::vector<std::string> arguments = {"train",     "cnn.toml", "--set",   epochs,
                                          "--run-dir", run,        "--lanes", "2"};
    const int epoch = std::uniform_int_distribution(1, 8)(random);
    SCOPED_TRACE(fmt::format("seed {}, stopped after epoch {}", seed, epoch));
    {
      // One page of lines is about 40 epochs: the run can't end before the signal.
      Process process = start(arguments);
      ASSERT_TRUE(process.wait_for_line(fmt::format("epoch {}/{}", epoch, kEpochs)))
          << process.error();
      process.signal(attempt % 2 == 1 ? SIGINT : SIGTERM);
      ASSERT_EQ(process.wait(), 75) << process.error();
      EXPECT_THAT(process.error(), AllOf(HasSubstr("--resume"), HasSubstr("checkpoint is saved")));
    }
    EXPECT_EQ(report(run).at("stopped_by"), "signal");
    EXPECT_FALSE(exists(run + "/model.safetensors"));
    arguments.push_back("--resume");
    EXPECT_THAT(done(arguments).error, HasSubstr("resumed from"));
    EXPECT_EQ(hash(run), hash("whole"));
    EXPECT_EQ(report(run).at("samples_unique"), 90 * kEpochs);
    EXPECT_EQ(report(run).at("steps"), report("whole").at("steps"));
    const std::string history = read(run + "/history.csv");
    EXPECT_EQ(std::count(history.begin(), history.end(), '\n'), kEpochs + 1);
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("whole/ledger.jsonl"));
  }
}

TEST_F(CommandTest, ResumeAfterSigkillGivesTheSameWeights) {
  write_cnn_job();
  constexpr int kEpochs = 60;
  const std::string epochs = fmt::format("training.epochs={}", kEpochs);
  done({"train", "cnn.toml", "--set", epochs, "--run-dir", "whole"});
  const std::vector<std::string> arguments = {
      "train",     "cnn.toml", "--set", epochs,
      "--run-dir", "killed",   "--set", "checkpoint.every_steps=7"};
  {
    Process process = start(arguments);
    ASSERT_TRUE(process.wait_for_line(fmt::format("epoch 6/{}", kEpochs))) << process.error();
    process.signal(SIGKILL);
    ASSERT_EQ(process.wait(), 128 + SIGKILL);
  }
  write("killed/.tmp-curves.svg-1-0", "<svg");  // as if it had been writing this
  std::vector<std::string> again = arguments;
  again.push_back("--resume");
  done(again);
  EXPECT_EQ(hash("killed"), hash("whole"));
  EXPECT_EQ(read("killed/ledger.jsonl"), read("whole/ledger.jsonl"));
  EXPECT_FALSE(exists("killed/.tmp-curves.svg-1-0"));
}

TEST_F(CommandTest, SecondSignalEndsAtOnce) {
  write_cnn_job();
  Process process = start({"train", "cnn.toml", "--set", "training.epochs=60"});
  ASSERT_TRUE(process.wait_for_line("epoch 1/60"));
  // Frozen, so that it can't end between the two.
  process.signal(SIGSTOP);
  process.signal(SIGTERM);
  process.signal(SIGINT);
  process.signal(SIGCONT);
  const int code = process.wait();
  EXPECT_TRUE(code == 128 + SIGINT || code == 128 + SIGTERM) << code << process.error();
}

TEST_F(CommandTest, DamagedCheckpointIsPassedOverAndSaid) {
  write_cnn_job();
  done({"train", "cnn.toml", "--run-dir", "whole"});
  done({"train", "cnn.toml", "--set", "training.epochs=2", "--set", "checkpoint.every_steps=4",
        "--run-dir", "damaged"});
  std::vector<std::filesystem::path> checkpoints;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "damaged/checkpoints")) {
    checkpoints.push_back(entry.path());
  }
  std::sort(checkpoints.begin(), checkpoints.end());
  ASSERT_GE(checkpoints.size(), 2u);
  {
    std::fstream file(checkpoints.back() / "weights.safetensors",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x55');
  }
  const Ended ended = done({"train", "cnn.toml", "--run-dir", "damaged", "--resume"});
  EXPECT_THAT(ended.error, AllOf(HasSubstr("a damaged checkpoint was passed over"),
                                 HasSubstr(checkpoints.back().filename().string())));
  EXPECT_EQ(hash("damaged"), hash("whole"));
}

TEST_F(CommandTest, ResumeWithoutACheckpointStartsAtTheBeginning) {
  write_cnn_job();
  EXPECT_THAT(done({"train", "cnn.toml", "--resume"}).error,
              HasSubstr("starting at the beginning"));
  EXPECT_EQ(report("runs/cnn").at("epochs"), 3);
}

// Other bits are no error, but they are said. What was said is saved.
TEST_F(CommandTest, ResumeSaysThatTheInstructionSetIsAnother) {
  write_cnn_job();
  done({"train", "cnn.toml", "--set", "isa=sse4", "--set", "training.epochs=2"});
  EXPECT_THAT(
      done({"train", "cnn.toml", "--resume"}).error,
      HasSubstr("note: the weights go on, but not with the same bits: isa was sse4 and is "));
  EXPECT_THAT(done({"train", "cnn.toml", "--resume"}).error,
              AllOf(HasSubstr("resumed from"), testing::Not(HasSubstr("the same bits"))));
}

TEST_F(CommandTest, ResumeRefusesAJobWithOtherNumbers) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const std::string job = read("runs/cnn/job.toml");
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--resume", "--set", "training.batch=10"}),
              HasSubstr("batch"));
  EXPECT_EQ(read("runs/cnn/job.toml"), job) << "what was there is left as it is";
}

TEST_F(CommandTest, RunFolderIsNotOverwrittenUnasked) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const std::string before = hash("runs/cnn");
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--seed", "2"}),
              AllOf(HasSubstr("--resume"), HasSubstr("--overwrite")));
  EXPECT_EQ(hash("runs/cnn"), before);
  refused(2, {"train", "cnn.toml", "--overwrite", "--set", "data.features=[4, 4, 1]", "--set",
              "model.input=[6, 6, 1]"});
  EXPECT_EQ(hash("runs/cnn"), before) << "a job that can't run removes nothing";
  done({"train", "cnn.toml", "--seed", "2", "--overwrite"});
  EXPECT_NE(hash("runs/cnn"), before);
  write("notes.txt", "mine");
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--overwrite", "--run-dir", "."}),
              HasSubstr("not the folder of a run"));
  EXPECT_EQ(read("notes.txt"), "mine");
}

// Results that can't be gone on from are not removed for that, nor what no run has written.
TEST_F(CommandTest, ResumeRemovesNoResultsAndNoFilesOfOthers) {
  write_cnn_job();
  done({"train", "cnn.toml", "--set", "checkpoint.enabled=false"});
  const std::string before = hash("runs/cnn");
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--resume"}),
              AllOf(HasSubstr("no checkpoint to go on from"), HasSubstr("--overwrite")));
  EXPECT_EQ(hash("runs/cnn"), before);

  const std::string job = read("cnn.toml");
  write("job.toml", job);
  write("log.txt", "mine");
  for (const char* use : {"--resume", "--overwrite"}) {
    EXPECT_THAT(refused(2, {"train", "job.toml", "--run-dir", ".", use}),
                HasSubstr("not the folder of a run"));
    EXPECT_EQ(read("job.toml"), job);
    EXPECT_EQ(read("log.txt"), "mine");
  }
}

// Its best weights may be there already; it makes them again.
TEST_F(CommandTest, ARunThatWasLostBeforeItsFirstCheckpointBeginsAgain) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const std::string before = hash("runs/cnn");
  for (const char* late : {"checkpoints", "model.safetensors", "report.json"})
    ASSERT_GT(std::filesystem::remove_all(folder_ / "runs/cnn" / late), 0u) << late;
  ASSERT_TRUE(exists("runs/cnn/best.safetensors"));
  done({"train", "cnn.toml", "--resume"});
  EXPECT_EQ(hash("runs/cnn"), before);
}

// However many begin in a folder, one has it; job/run_folder_test.cc has the moment that decides.
TEST_F(CommandTest, OneOfManyRunsThatBeginAtOnceHasTheFolder) {
  write_cnn_job();
  for (const char* workers : {"1", "2"}) {
    const std::string run = fmt::format("run{}", workers);
    SCOPED_TRACE(run);
    const auto begin = [&](const char* seed) {
      return start({"train", "cnn.toml", "--run-dir", run, "--workers", workers, "--seed", seed});
    };
    Process all[] = {begin("1"), begin("2"), begin("3"), begin("4")};
    int done = 0;
    for (Process& process : all) {
      const int code = process.wait();
      if (code == 0) {
        ++done;
        continue;
      }
      EXPECT_EQ(code, 2);
      EXPECT_THAT(process.error(), AnyOf(HasSubstr("is under way"), HasSubstr("is not empty")));
    }
    EXPECT_EQ(done, 1);
    EXPECT_EQ(report(run).at("epochs"), 3);
  }
}

TEST_F(CommandTest, EarlyStoppingEndsTheRunAndIsFinal) {
  write_cnn_job();
  const std::vector<std::string> job = {"train", "cnn.toml",
                                        "--set", "training.epochs=50",
                                        "--set", "training.early_stopping.patience=1",
                                        "--set", "training.early_stopping.min_delta=1000"};
  const Ended ended = done(job);
  EXPECT_THAT(ended.output, HasSubstr("early_stopping"));
  EXPECT_EQ(report("runs/cnn").at("stopped_by"), "early_stopping");
  EXPECT_EQ(report("runs/cnn").at("epochs"), 2);
  std::vector<std::string> again = job;
  again.push_back("--resume");
  EXPECT_THAT(refused(2, again), HasSubstr("is finished"));
}

TEST_F(CommandTest, PredictGivesProbabilitiesOfSamples) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const std::string text = done({"predict", "runs/cnn", "--samples", "5:8", "--top", "2"}).output;
  EXPECT_THAT(text, AllOf(HasSubstr("sample 5: class "), HasSubstr("sample 7: class "),
                          Not(HasSubstr("sample 8"))));
  done({"predict", "runs/cnn", "--samples", "0:40", "--output", "test.npy"});
  // What was written can be read, and fed to a model that takes four numbers.
  write("four.toml",
        "[model]\ninput = [4]\nlayers = [{type = \"dense\", units = 4}]\n[data]\nsource = "
        "\"synthetic\"\n"
        "features = [4]\nclasses = 4\nsamples = 64\n");
  done({"train", "four.toml", "--run-dir", "four"});
  done({"predict", "four", "--input", "test.npy", "--output", "four.csv"});
  const std::string csv = read("four.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 41);
  EXPECT_THAT(refused(2, {"predict", "runs/cnn", "--input", "test.npy"}),
              AllOf(HasSubstr("4"), HasSubstr("6×6×1")));
  EXPECT_THAT(refused(2, {"predict", "runs/cnn", "--samples", "0:41"}), HasSubstr("has 40"));
}

TEST_F(CommandTest, DescribeShowsTheModelAndItsCost) {
  write_cnn_job();
  const std::string text = done({"describe", "cnn.toml", "--kernels"}).output;
  EXPECT_THAT(
      text, AllOf(HasSubstr("conv2d_1"), HasSubstr("6×6×4"), HasSubstr("memory"), HasSubstr("cost"),
                  HasSubstr("3 shards"), HasSubstr("kernels of a micro-batch of 7")));
}

TEST_F(CommandTest, TuneWritesIntoTheJobAndKeepsTheRest) {
  write("job.toml",
        "# mine\nname = \"a\"\n\n[data]\nsource = \"synthetic\"\nsamples = 64\n"
        "[[model.layers]]\ntype = \"dense\" # the only one\nunits = 10\n[training]\nbatch = 16\n");
  const std::string before = read("job.toml");
  EXPECT_THAT(done({"tune", "job.toml", "--dry-run"}).output, HasSubstr("best: shards ="));
  EXPECT_EQ(read("job.toml"), before);
  EXPECT_THAT(done({"tune", "job.toml"}).error, HasSubstr("warning: "));
  const std::string after = read("job.toml");
  EXPECT_THAT(after, AllOf(HasSubstr("# mine"), HasSubstr("# the only one"),
                           HasSubstr("\nshards = "), HasSubstr("\nmicro_batch = ")));
  done({"train", "job.toml"});
}

TEST_F(CommandTest, DataInfoCountsClasses) {
  write_cnn_job();
  EXPECT_THAT(done({"data", "info", "cnn.toml"}).output,
              AllOf(HasSubstr("6×6×1"), HasSubstr("classes   4:")));
}

}  // namespace
}  // namespace starling
