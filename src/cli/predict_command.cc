#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/predictions.h"
#include "cli/trained_model.h"
#include "data/npy.h"
#include "job/job_build.h"
#include "starling/error.h"

namespace starling {
namespace {

bool is_class_problem(const Job& job) { return job.training.loss == "softmax_cross_entropy"; }

// {28, 28} is as good as {28, 28, 1}.
bool same_but_for_ones(const Shape& a, const Shape& b) {
  const auto without_ones = [](const Shape& shape) {
    std::vector<int64_t> extents;
    for (int i = 0; i < shape.rank(); ++i) {
      if (shape[i] != 1) extents.push_back(shape[i]);
    }
    return extents;
  };
  return without_ones(a) == without_ones(b);
}

// Samples are scaled as those that the model was trained on.
float scale_of(const Job& job, data::ElementType type) {
  if (job.data.scale) return static_cast<float>(*job.data.scale);
  const bool images =
      job.data.source == "fashion-mnist" || job.data.source == "mnist" || job.data.source == "idx";
  return images && type == data::ElementType::kU8 ? 1.0f / 255 : 1.0f;
}

Predictions predict_file(TrainedModel& model, const std::filesystem::path& path) {
  const data::Array array = data::parse_npy(data::map_bytes(path));
  const Shape input = model.trainer.model().input_shape();
  if (!same_but_for_ones(array.layout.sample, input)) {
    throw input_error(
        fmt::format("{}: its samples are {}, but the model's input is {}", path.string(),
                    array.layout.sample.to_string(), input.to_string()),
        "give an array of shape {samples, …input}");
  }
  const auto width = static_cast<size_t>(input.elements());
  std::vector<float> features(static_cast<size_t>(array.layout.samples) * width);
  data::to_float(array.layout.type, array.layout.big_endian, array.sample(0), features.size(),
                 scale_of(model.job, array.layout.type), features.data());
  const size_t bad = data::first_non_finite(features);
  if (bad < features.size()) {
    throw input_error(
        fmt::format("{}: sample {} has a value that is not finite", path.string(), bad / width),
        "remove or repair this sample");
  }
  return {.values = model.trainer.predict(features), .shape = model.trainer.model().output_shape()};
}

Predictions predict_test_data(TrainedModel& model, const Arguments::SampleRange& range) {
  const JobData data = open_data(model.job);
  if (!data.test)
    throw input_error("the job has no test data", "give samples with --input FILE.npy");
  const data::Dataset samples = data.test.range(range.first, range.last - range.first);
  return {.values = model.trainer.predict(samples),
          .shape = model.trainer.model().output_shape(),
          .first_sample = range.first};
}

}  // namespace

int predict_command(const Arguments& arguments) {
  if (arguments.input.empty() && !arguments.samples) {
    throw input_error("predict needs samples",
                      "give --input FILE.npy, or --samples 0:10 of the test data");
  }
  TrainedModel model = load_trained(arguments);
  Predictions predictions = arguments.samples ? predict_test_data(model, *arguments.samples)
                                              : predict_file(model, arguments.input);
  if (!arguments.raw && is_class_problem(model.job)) softmax_rows(predictions);
  if (!arguments.raw && model.job.training.loss == "binary_cross_entropy")
    sigmoid_values(predictions);
  if (arguments.output.empty()) {
    const bool classes = !arguments.raw && is_class_problem(model.job);
    fmt::print("{}", predictions_text(predictions, classes, static_cast<size_t>(arguments.top)));
  } else {
    write_predictions(predictions, arguments.output);
    fmt::print("{} predictions are in {}\n", predictions.rows(), arguments.output.string());
  }
  return kExitDone;
}

}  // namespace starling
