#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/trained_model.h"
#include "job/job_build.h"
#include "starling/error.h"

namespace starling {

int eval_command(const Arguments& arguments) {
  TrainedModel model = load_trained(arguments);
  const JobData data = open_data(model.job);
  if (!data.test) {
    throw input_error("the job has no test data",
                      "name it with --set data.test_features=… and --set data.test_labels=…");
  }
  const Evaluation evaluation = model.trainer.evaluate(data.test);
  fmt::print("{:<16} {}\n{:<16} {}\n", "weights", model.weights.string(), "samples",
             evaluation.samples);
  for (const auto& [name, value] : evaluation.values) {
    fmt::print("{:<16} {:.6f}\n", "test_" + name, value);
  }
  return kExitDone;
}

}  // namespace starling
