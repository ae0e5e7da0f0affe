// Whatever is wrong, the command ends with `error:`, `hint:` and the right exit code: 2 for what
// the user gave, 1 for what went wrong in the run; and leaves no partial file under a final name.
#include <limits>

#include "base/atomic_file_testing.h"
#include "command_testing.h"
#include "data/test_files.h"

namespace starling {
namespace {

using data::gzip;
using data::idx_header;
using data::little_endian;
using data::npy_file;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class BadInput : public CommandTest {
 protected:
  // Six samples of 2 numbers, in two classes, as NPY; `labels` and `features` may be spoilt.
  void write_npy(std::vector<float> features, const std::vector<float>& labels) const {
    const auto bytes = [](const std::vector<float>& values) {
      std::string text;
      for (const float value : values) text += little_endian(value);
      return text;
    };
    write("x.npy", npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (6, 2), }\n",
                            bytes(features)));
    write("y.npy",
          npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }\n", bytes(labels)));
  }
  void write_npy_job() const {
    write("npy.toml",
          "[data]\nsource = \"npy\"\ntrain_features = \"x.npy\"\ntrain_labels = \"y.npy\"\n"
          "[[model.layers]]\ntype = \"dense\"\nunits = 2\n[training]\nbatch = 4\n");
  }
  void write_idx_job() const {
    write("idx.toml",
          "[data]\nsource = \"idx\"\ntrain_features = \"x.idx\"\ntrain_labels = \"y.idx\"\n"
          "[[model.layers]]\ntype = \"flatten\"\n[[model.layers]]\ntype = \"dense\"\nunits = 2\n");
  }
  void expect_no_run() const { EXPECT_FALSE(exists("runs")); }
};

TEST_F(BadInput, MissingJob) {
  EXPECT_THAT(refused(2, {"train", "absent.toml"}), HasSubstr("absent.toml"));
  expect_no_run();
}

// As when a folder above it may not be entered, which root can't be refused.
TEST_F(BadInput, PathsThatCannotBeLookedAt) {
  const std::string name(300, 'x');
  write_cnn_job();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"train", name + ".toml"},
                                                {"describe", name},
                                                {"tune", name},
                                                {"eval", name},
                                                {"data", "info", name + ".toml"},
                                                {"train", "cnn.toml", "--run-dir", name},
                                                {"eval", "cnn.toml", "--weights", name}}) {
    EXPECT_THAT(refused(2, words), HasSubstr("name too long")) << words[0];
  }
}

TEST_F(BadInput, MalformedJob) {
  write("job.toml", "[data\nsource = 1");
  EXPECT_THAT(refused(2, {"train", "job.toml"}), HasSubstr("job.toml:1"));
  write("binary.toml", std::string("\x00\x01\xff\xfe", 4));
  refused(2, {"train", "binary.toml"});
  expect_no_run();
}

TEST_F(BadInput, AMetricThatDoesNotFitTheLabels) {
  write_cnn_job();
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "training.metrics=[\"absolute_error\"]"}),
              AllOf(HasSubstr("absolute_error"), HasSubstr("measure accuracy")));
  expect_no_run();
}

TEST_F(BadInput, UnknownKeyAndWrongType) {
  write_cnn_job();
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "training.epoch=3"}),
              HasSubstr("did you mean training.epochs?"));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "training.batch=many"}),
              HasSubstr("whole number"));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--lanes", "two"}), HasSubstr("--lanes"));
  EXPECT_THAT(refused(2, {"trian", "cnn.toml"}), HasSubstr("did you mean train?"));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--lanse=2"}), HasSubstr("did you mean --lanes?"));
  expect_no_run();
}

TEST_F(BadInput, ShapesThatDoNotFitNameTheLayerAndBothShapes) {
  write_cnn_job();
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "model.layers.0.padding=valid", "--set",
                          "model.layers.0.kernel=9"}),
              AllOf(HasSubstr("layer conv2d_1"), HasSubstr("6×6×1"), HasSubstr("9×9")));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "model.input=[4, 4, 1]"}),
              AllOf(HasSubstr("4×4×1"), HasSubstr("6×6×1")));
  expect_no_run();
}

TEST_F(BadInput, LabelsOutOfRangeNameTheSample) {
  write_npy_job();
  write_npy({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 1, 0, 7, 0, 1});
  EXPECT_THAT(refused(2, {"train", "npy.toml"}),
              AllOf(HasSubstr("label 7 of sample 3"), HasSubstr("0 … 1")));
  write_npy({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 1, 0, 0.5, 0, 1});
  EXPECT_THAT(refused(2, {"train", "npy.toml", "--overwrite"}), HasSubstr("sample 3"));
  EXPECT_FALSE(exists("runs/run/report.json"));
  EXPECT_FALSE(exists("runs/run/model.safetensors"));
}

TEST_F(BadInput, NanInDataNamesTheSample) {
  write_npy_job();
  write_npy({0, 1, 2, 3, std::numeric_limits<float>::quiet_NaN(), 5, 6, 7, 8, 9, 10, 11},
            {0, 1, 0, 1, 0, 1});
  EXPECT_THAT(refused(2, {"train", "npy.toml"}), HasSubstr("sample 2"));
}

TEST_F(BadInput, NanInLossNamesStepAndLayer) {
  write_cnn_job();
  EXPECT_THAT(refused(1, {"train", "cnn.toml", "--set", "optimizer.name=sgd", "--set",
                          "optimizer.learning_rate=1e30"}),
              AllOf(HasSubstr("step 2"), HasSubstr("not finite"), HasSubstr("layer dense_1")));
  EXPECT_FALSE(exists("runs/cnn/report.json"));
  EXPECT_THAT(read("runs/cnn/log.txt"), HasSubstr("not finite"));
}

// Epochs of a millisecond are not all written at once; those before the failure must not be missed.
TEST_F(BadInput, ARunThatFailsHasWrittenAllItsEpochs) {
  write_cnn_job();
  const std::string error =
      refused(1, {"train", "cnn.toml", "--set", "training.epochs=60", "--set", "optimizer.name=sgd",
                  "--set", "optimizer.learning_rate=0.01", "--set", "optimizer.weight_decay=400"});
  EXPECT_THAT(error, HasSubstr("not finite"));
  const std::string history = read("runs/cnn/history.csv");
  const auto epochs = std::count(history.begin(), history.end(), '\n') - 1;
  EXPECT_GT(epochs, 3) << "weights grow threefold a step";
  EXPECT_THAT(error, HasSubstr(fmt::format("epoch {}/60", epochs)));
  EXPECT_THAT(error, Not(HasSubstr(fmt::format("epoch {}/60", epochs + 1))));
}

TEST_F(BadInput, TruncatedAndHostileIdxFiles) {
  write_idx_job();
  const std::string labels = idx_header(8, {4}) + std::string(4, '\1');
  write("y.idx", labels);
  const std::string good = idx_header(8, {4, 2, 2}) + std::string(16, '\5');
  const std::vector<std::string> bad = {
      "",
      "no idx file at all",
      good.substr(0, 3),
      good.substr(0, 9),
      good.substr(0, good.size() - 1),
      good + "x",
      idx_header(8, {4, 0xffffffff, 0xffffffff}) + "abc",
      idx_header(8, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
      idx_header(8, {0, 2, 2}),
      idx_header(0x42, {4, 2, 2}) + std::string(16, '\5'),
      gzip(good).substr(0, 20),
      gzip(idx_header(8, {4, 0x7fffffff, 2})),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    write("x.idx", bad[i]);
    EXPECT_THAT(refused(2, {"train", "idx.toml"}), HasSubstr("x.idx"));
  }
  write("x.idx", good);
  write("y.idx", idx_header(8, {3}) + std::string(3, '\1'));
  refused(2, {"train", "idx.toml"});
  expect_no_run();
  write("y.idx", labels);
  done({"train", "idx.toml"});
}

TEST_F(BadInput, TruncatedAndHostileNpyFiles) {
  write_npy_job();
  write_npy({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {0, 1, 0, 1, 0, 1});
  const std::string good = read("x.npy");
  const std::string numbers(48, '\0');
  const std::vector<std::string> bad = {
      "",
      good.substr(0, 7),
      good.substr(0, 30),
      good.substr(0, good.size() - 1),
      npy_file("{'descr': '<f4', 'fortran_order': False, 'shape': (6, 4611686018427387904), }\n",
               numbers),
      npy_file(
          "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999999, 2), }\n",
          numbers),
      npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (6, 2), }\n", numbers),
      npy_file("{'descr': '|O', 'fortran_order': False, 'shape': (6, 2), }\n", numbers),
      npy_file("{'descr': '<f4'", numbers),
      std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13),
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    write("x.npy", bad[i]);
    EXPECT_THAT(refused(2, {"train", "npy.toml"}), HasSubstr("x.npy"));
  }
  expect_no_run();
  write("x.npy", good);
  done({"train", "npy.toml"});
}

TEST_F(BadInput, HostileSafetensorsFiles) {
  write_cnn_job();
  done({"train", "cnn.toml"});
  const std::string good = read("runs/cnn/model.safetensors");
  const auto header = [](const std::string& json) {
    return little_endian(static_cast<uint64_t>(json.size())) + json;
  };
  const std::vector<std::string> bad = {
      "",
      "short",
      good.substr(0, good.size() / 2),
      good + "x",
      little_endian(uint64_t{0xffffffffffffffff}) + "{}",
      header("{\"a\": {\"dtype\": \"F32\", \"shape\": [4611686018427387904, 4], \"data_offsets\": "
             "[0, 4]}}") +
          "abcd",
      header("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [8, 4]}}") + "abcd",
      header(std::string(100000, '[')),
      header("{\"a\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}") +
          "abcd",  // of another model
  };
  for (size_t i = 0; i < bad.size(); ++i) {
    SCOPED_TRACE(i);
    write("bad.safetensors", bad[i]);
    refused(2, {"eval", "runs/cnn", "--weights", "bad.safetensors"});
  }
  refused(2, {"eval", "runs/cnn", "--weights", "absent.safetensors"});
}

TEST_F(BadInput, UnwritableRunFolder) {
  write_cnn_job();
  write("file", "not a folder");
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--run-dir", "file/run"}), HasSubstr("file"));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--run-dir", "file"}), HasSubstr("is a file"));
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--run-dir", "/proc/starling"}),
              HasSubstr("/proc/starling"));
  EXPECT_EQ(read("file"), "not a folder");
}

TEST_F(BadInput, WatchedValueThatTheRunDoesNotHave) {
  write_cnn_job();
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "training.save_best.value=val_acuracy"}),
              AllOf(HasSubstr("val_acuracy"), HasSubstr("val_accuracy")));
  expect_no_run();
}

TEST_F(BadInput, NameThatIsNoFolder) {
  write_cnn_job();
  EXPECT_THAT(refused(2, {"train", "cnn.toml", "--set", "name=../out"}),
              HasSubstr("can't be the name of a folder"));
}

TEST_F(BadInput, FullDiskEndsTheRunAndLeavesNothingHalf) {
  const SmallDisk disk("256k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  std::filesystem::create_directory_symlink(disk.path(), folder_ / "disk");
  write_cnn_job();
  // 400 KB of weights: the first files fit, the weights don't.
  const std::string error = refused(
      1, {"train", "cnn.toml", "--run-dir", "disk/run", "--set", "model.layers.6.units=2800"});
  EXPECT_THAT(error, AllOf(HasSubstr("No space left"), HasSubstr("free some space")));
  EXPECT_FALSE(exists("disk/run/model.safetensors"));
  EXPECT_FALSE(exists("disk/run/report.json"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "disk/run")) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("step-") || name.starts_with(".tmp-")) << entry.path();
  }
  // With no space at all the run does not even start.
  write("disk/filler", std::string(256 << 10, 'x'));
  EXPECT_THAT(refused(1, {"train", "cnn.toml", "--run-dir", "disk/other"}),
              HasSubstr("No space left"));
}

TEST_F(BadInput, FullDiskLosesNothingThatWasSavedBefore) {
  const SmallDisk disk("512k");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  std::filesystem::create_directory_symlink(disk.path(), folder_ / "disk");
  write_cnn_job();
  done({"train", "cnn.toml", "--run-dir", "whole"});
  done({"train", "cnn.toml", "--run-dir", "disk/run", "--set", "training.epochs=2"});
  const std::string before = hash("disk/run");
  write("disk/filler", std::string(512 << 10, 'x'));
  EXPECT_THAT(refused(1, {"train", "cnn.toml", "--run-dir", "disk/run", "--resume"}),
              HasSubstr("No space left"));
  EXPECT_EQ(hash("disk/run"), before);
  std::filesystem::remove(folder_ / "disk/filler");
  done({"train", "cnn.toml", "--run-dir", "disk/run", "--resume"});
  EXPECT_EQ(hash("disk/run"), hash("whole"));
}

// Only checkpoints lie on it. The run goes on to its end without new ones, and another goes on from
// the last that was saved.
TEST_F(BadInput, DiskThatBecomesReadOnlyEndsNoTraining) {
  SmallDisk disk("1m");
  if (!disk.mounted()) GTEST_SKIP() << "no small disk: " << disk.reason();
  write_cnn_job();
  const auto train = [](const std::string& run, int epochs, const char* workers) {
    return std::vector<std::string>{"train",     "cnn.toml",
                                    "--run-dir", run,
                                    "--workers", workers,
                                    "--set",     fmt::format("training.epochs={}", epochs),
                                    "--set",     "checkpoint.every_steps=7"};
  };
  constexpr int kEpochs = 60;
  done(train("whole", kEpochs, "1"));
  for (const char* workers : {"1", "2"}) {
    const std::string run = fmt::format("run{}", workers);
    SCOPED_TRACE(run);
    done(train(run, 1, workers));
    const auto checkpoints = folder_ / run / "checkpoints", moved = disk.path() / run;
    std::filesystem::copy(checkpoints, moved, std::filesystem::copy_options::recursive);
    std::filesystem::remove_all(checkpoints);
    std::filesystem::create_directory_symlink(moved, checkpoints);
    std::vector<std::string> again = train(run, kEpochs, workers);
    again.push_back("--resume");
    Process process = start(again);
    ASSERT_TRUE(process.wait_for_line(fmt::format("epoch 6/{}", kEpochs))) << process.error();
    const auto end = Process::Clock::now() + Process::kDeadline;
    while (!disk.make_read_only()) {  // a checkpoint is just being written
      ASSERT_TRUE(errno == EBUSY && Process::Clock::now() < end);
    }
    const std::vector<std::string> saved = TemporaryFolder::names(moved);
    EXPECT_EQ(process.wait(), 0) << process.error();
    EXPECT_THAT(process.error(), AllOf(HasSubstr("a checkpoint was not saved, training goes on"),
                                       HasSubstr("is read-only")));
    EXPECT_EQ(hash(run), hash("whole"));
    EXPECT_EQ(TemporaryFolder::names(moved), saved);
    ASSERT_FALSE(saved.empty());

    // It is still read-only.
    EXPECT_THAT(done(again).error, AllOf(HasSubstr("resumed from"), HasSubstr(saved.back())));
    EXPECT_EQ(hash(run), hash("whole"));
    EXPECT_EQ(read(run + "/ledger.jsonl"), read("whole/ledger.jsonl"));
    ASSERT_TRUE(disk.resize("1m"));  // writable
  }
}

}  // namespace
}  // namespace starling
