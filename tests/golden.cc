#include "golden.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/json.h"

namespace starling::golden {
namespace {

Shape read_shape(const nlohmann::json& json) {
  return Shape(std::span<const int64_t>(json.get<std::vector<int64_t>>()));
}

Window read_window(const nlohmann::json& json) {
  Window window;
  window.kernel_h = json.at("kernel").at(0);
  window.kernel_w = json.at("kernel").at(1);
  window.stride_h = json.at("stride").at(0);
  window.stride_w = json.at("stride").at(1);
  const nlohmann::json& padding = json.at("padding");
  window.same = padding == "same";
  if (!window.same) {
    window.pad_top = padding.at(0);
    window.pad_bottom = padding.at(1);
    window.pad_left = padding.at(2);
    window.pad_right = padding.at(3);
  }
  return window;
}

OperatorPtr read_operator(const nlohmann::json& json) {
  const std::string kind = json.at("kind");
  using Mode = Pool2dOp::Mode;
  if (kind == "dense") {
    return std::make_shared<DenseOp>(
        DenseOp::Options{.units = json.at("units"), .bias = json.at("bias")});
  }
  if (kind == "conv2d") {
    return std::make_shared<Conv2dOp>(Conv2dOp::Options{.filters = json.at("filters"),
                                                        .window = read_window(json),
                                                        .groups = json.at("groups"),
                                                        .bias = json.at("bias")});
  }
  if (kind == "max_pool2d") return std::make_shared<Pool2dOp>(Mode::kMax, read_window(json));
  if (kind == "average_pool2d") {
    return std::make_shared<Pool2dOp>(Mode::kAverage, read_window(json));
  }
  if (kind == "global_max_pool2d") return std::make_shared<GlobalPool2dOp>(Mode::kMax);
  if (kind == "global_average_pool2d") return std::make_shared<GlobalPool2dOp>(Mode::kAverage);
  if (kind == "flatten") return std::make_shared<ReshapeOp>(std::nullopt);
  if (kind == "reshape") return std::make_shared<ReshapeOp>(read_shape(json.at("target")));
  if (kind == "softmax") return std::make_shared<SoftmaxOp>();
  if (kind == "add") return std::make_shared<AddOp>();
  if (kind == "dropout") return std::make_shared<DropoutOp>(json.at("rate").get<float>());
  if (kind == "batch_norm") {
    return std::make_shared<BatchNormOp>(
        BatchNormOp::Options{.momentum = json.at("momentum"), .epsilon = json.at("epsilon")});
  }
  for (ActivationKind activation :
       {ActivationKind::kRelu, ActivationKind::kLeakyRelu, ActivationKind::kGelu,
        ActivationKind::kSigmoid, ActivationKind::kTanh}) {
    if (kind == activation_name(activation)) {
      return std::make_shared<ActivationOp>(activation, json.value("slope", 0.01f));
    }
  }
  throw std::runtime_error("golden numbers for an unknown operator: " + kind);
}

}  // namespace

nlohmann::json read_json(const std::string& file) {
  const std::string path = std::string(STARLING_SOURCE_DIR) + "/tests/golden/" + file;
  std::ifstream stream(path);
  if (!stream) throw std::runtime_error("can't open " + path);
  std::ostringstream text;
  text << stream.rdbuf();
  Json json = parse_json(text.str());
  if (json.is_discarded()) throw std::runtime_error(path + " is no JSON");
  return json;
}

std::vector<OperatorCase> load_operator_cases() {
  std::vector<OperatorCase> cases;
  for (const nlohmann::json& json : read_json("operators.json")) {
    OperatorCase& c = cases.emplace_back();
    c.name = json.at("name");
    c.op = read_operator(json.at("operator"));
    c.rows = json.at("rows");
    c.training = json.at("training");
    for (const nlohmann::json& shape : json.at("input_shapes")) {
      c.input_shapes.push_back(read_shape(shape));
    }
    json.at("inputs").get_to(c.inputs);
    json.at("parameters").get_to(c.parameters);
    c.output_shape = read_shape(json.at("output_shape"));
    json.at("output").get_to(c.output);
    json.at("grad_output").get_to(c.grad_output);
    json.at("grad_inputs").get_to(c.grad_inputs);
    json.at("grad_parameters").get_to(c.grad_parameters);
    c.running_mean = json.value("running_mean", Floats{});
    c.running_variance = json.value("running_variance", Floats{});
    c.batch_mean = json.value("batch_mean", Floats{});
    c.batch_m2 = json.value("batch_m2", Floats{});
    c.running_mean_after = json.value("running_mean_after", Floats{});
    c.running_variance_after = json.value("running_variance_after", Floats{});
    if (json.contains("draws")) {
      const nlohmann::json& draws = json.at("draws");
      c.seed = draws.at("seed");
      c.epoch = draws.at("epoch");
      draws.at("samples").get_to(c.samples);
    }
  }
  return cases;
}

std::vector<LossCase> load_loss_cases() {
  std::vector<LossCase> cases;
  for (const nlohmann::json& json : read_json("losses.json")) {
    LossCase& c = cases.emplace_back();
    c.name = json.at("name");
    const std::string kind = json.at("loss");
    for (LossPtr loss : {softmax_cross_entropy(), binary_cross_entropy(), mean_squared_error()}) {
      if (loss->kind() == kind) c.loss = loss;
    }
    if (!c.loss) throw std::runtime_error("golden numbers for an unknown loss: " + kind);
    c.rows = json.at("rows");
    c.shape = read_shape(json.at("shape"));
    json.at("prediction").get_to(c.prediction);
    json.at("labels").get_to(c.labels);
    json.at("losses").get_to(c.losses);
    c.scale = json.at("scale");
    json.at("grad_prediction").get_to(c.grad_prediction);
  }
  return cases;
}

std::vector<MetricCase> load_metric_cases() {
  std::vector<MetricCase> cases;
  for (const nlohmann::json& json : read_json("metrics.json")) {
    MetricCase& c = cases.emplace_back();
    c.name = json.at("name");
    const std::string kind = json.at("metric");
    if (kind == "accuracy") c.metric = accuracy();
    if (kind == "top_k") c.metric = top_k(json.at("k"));
    if (kind == "absolute_error") c.metric = absolute_error();
    if (!c.metric) throw std::runtime_error("golden numbers for an unknown metric: " + kind);
    c.rows = json.at("rows");
    c.shape = read_shape(json.at("shape"));
    json.at("prediction").get_to(c.prediction);
    json.at("labels").get_to(c.labels);
    json.at("values").get_to(c.values);
  }
  return cases;
}

}  // namespace starling::golden
