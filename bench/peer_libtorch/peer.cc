// LibTorch's side of the benchmark: the same models, samples and weights as ours, trained as its
// C++ tutorials do, and tuned where it has a choice: memory format, threads, gradients that are
// dropped instead of zeroed, denormal numbers flushed, bf16 by autocast.
//   libtorch_peer --model cnn --batch 64 --threads 1 --layout channels_last --precision f32
// With --count-memory 1 every allocation of a tensor is counted, which takes time: not for timing.
#include <ATen/autocast_mode.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>
#include <torch/torch.h>

#include <climits>
#include <cstdlib>
#include <functional>
#include <set>

#include "fixture.h"
#include "server.h"

namespace {

namespace nn = torch::nn;
using torch::Tensor;

// Counts the bytes of live tensors, and the most that ever lived.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) const override {
    void* memory = nullptr;
    if (bytes > 0 && posix_memalign(&memory, 64, bytes) != 0) throw std::bad_alloc();
    live += malloc_usable_size(memory);
    peak = std::max(peak, live);
    return {memory, memory, &release, at::Device(at::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  static inline size_t live = 0, peak = 0;

 private:
  static void release(void* memory) {
    live -= malloc_usable_size(memory);
    std::free(memory);
  }
};

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t width, int64_t stride) {
    if (stride != 1) shortcut = register_module("shortcut", conv(in, width, 1, stride));
    conv1 = register_module("conv1", conv(in, width, 3, stride));
    norm1 = register_module("norm1", nn::BatchNorm2d(width));
    conv2 = register_module("conv2", conv(width, width, 3, 1));
    norm2 = register_module("norm2", nn::BatchNorm2d(width));
  }
  static nn::Conv2d conv(int64_t in, int64_t width, int64_t kernel, int64_t stride) {
    return nn::Conv2d(
        nn::Conv2dOptions(in, width, kernel).stride(stride).padding(kernel / 2).bias(false));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = norm2(conv2(norm1(conv1(x)).relu_()));
    y += shortcut ? shortcut(x) : x;
    return y.relu_();
  }
  nn::Conv2d shortcut{nullptr}, conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
};
TORCH_MODULE(Block);

nn::Sequential make_model(const std::string& name) {
  const auto relu = [] { return nn::ReLU(nn::ReLUOptions().inplace(true)); };
  if (name == "mlp") return nn::Sequential(nn::Linear(784, 256), relu(), nn::Linear(256, 10));
  if (name == "large") {
    return nn::Sequential(nn::Linear(1024, 4096), relu(), nn::Linear(4096, 4096), relu(),
                          nn::Linear(4096, 10));
  }
  if (name == "small")
    return nn::Sequential(nn::Linear(16, 32), relu(), nn::Linear(32, 32), relu(),
                          nn::Linear(32, 4));
  if (name == "cnn") {
    return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 32, 3)), relu(), nn::MaxPool2d(2),
                          nn::Flatten(), nn::Linear(32 * 13 * 13, 10));
  }
  return nn::Sequential(BlockImpl::conv(1, 16, 3, 1), nn::BatchNorm2d(16), relu(), Block(16, 16, 1),
                        Block(16, 32, 2), Block(32, 64, 2),
                        nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)), nn::Flatten(),
                        nn::Linear(64, 10));
}

// Ours, in the order of ours. Flattened images are channels-last there and channels-first here.
void set_weights(nn::Sequential& model, bool flattened_image) {
  torch::NoGradGuard no_grad;
  size_t products = 0;
  for (const auto& item : model->named_parameters()) {
    Tensor parameter = item.value();
    if (parameter.dim() < 2) {
      if (item.key().find("bias") != std::string::npos) parameter.zero_();
      continue;
    }
    Tensor values = torch::empty(parameter.sizes());
    bench::fill_weights(products++, static_cast<size_t>(values.numel() / values.size(0)),
                        values.data_ptr<float>(), static_cast<size_t>(values.numel()));
    if (flattened_image && parameter.dim() == 2) {
      values = values.view({10, 13, 13, 32}).permute({0, 3, 1, 2}).reshape({10, 32 * 13 * 13});
    }
    parameter.copy_(values);
  }
}

struct Settings {
  std::string model;
  int64_t batch;
  bool channels_last, bf16, drop_gradients;
  double rate;
};

class Training final : public bench::Subject {
 public:
  Training(const Settings& settings, const bench::Problem& problem)
      : model_(make_model(settings.model)),
        bf16_(settings.bf16),
        drop_gradients_(settings.drop_gradients) {
    set_weights(model_, settings.model == "cnn");
    const std::vector<float> features =
        bench::make_features(static_cast<size_t>(settings.batch), problem);
    const std::vector<float> labels =
        bench::make_labels(static_cast<size_t>(settings.batch), problem);
    const bool image = settings.model == "cnn" || settings.model == "residual";
    features_ =
        torch::tensor(features).view({settings.batch, static_cast<int64_t>(problem.features)});
    if (image) features_ = features_.view({settings.batch, 1, 28, 28});
    labels_ = torch::tensor(labels).to(torch::kLong);
    if (settings.channels_last && image) {
      for (Tensor& parameter : model_->parameters()) {
        if (parameter.dim() == 4)
          parameter.set_data(parameter.data().contiguous(at::MemoryFormat::ChannelsLast));
      }
      features_ = features_.contiguous(at::MemoryFormat::ChannelsLast);
    }
    if (problem.adam) {
      optimizer_ = std::make_unique<torch::optim::Adam>(model_->parameters(),
                                                        torch::optim::AdamOptions(settings.rate));
    } else {
      optimizer_ = std::make_unique<torch::optim::SGD>(
          model_->parameters(), torch::optim::SGDOptions(settings.rate).momentum(0.9));
    }
    model_->train();
  }

  void step() override {
    model_->zero_grad(drop_gradients_);
    loss_ = nn::functional::cross_entropy(forward(), labels_);
    loss_.backward();
    optimizer_->step();
  }
  double loss() override { return loss_.item<double>(); }

  // The most that lived in a step, without what lives between steps and without the gradients of
  // all weights: in the peer's favour, because not all of them live at that moment.
  size_t activation_bytes() override {
    model_->zero_grad(true);
    loss_ = Tensor();
    size_t gradients = 0;
    for (const Tensor& parameter : model_->parameters()) gradients += parameter.nbytes();
    const size_t before = CountingAllocator::live;
    CountingAllocator::peak = before;
    step();
    const size_t needed = CountingAllocator::peak - before;
    return needed > gradients ? needed - gradients : 0;
  }

 private:
  Tensor forward() {
    if (!bf16_) return model_->forward(features_);
    at::autocast::set_cpu_enabled(true);
    at::autocast::set_autocast_cpu_dtype(at::kBFloat16);
    const Tensor output = model_->forward(features_);
    at::autocast::clear_cache();  // its copies of the weights, which change now
    at::autocast::set_cpu_enabled(false);
    return output.to(torch::kFloat);
  }

  nn::Sequential model_;
  const bool bf16_, drop_gradients_;
  Tensor features_, labels_, loss_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
};

// The best of a few matrix products: shows which BLAS is really there.
double matmul_gflops() {
  torch::NoGradGuard no_grad;
  const Tensor a = torch::ones({512, 512}), b = torch::ones({512, 512});
  double best = 0;
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    torch::matmul(a, b);
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, 2.0 * 512 * 512 * 512 / seconds / 1e9);
  }
  return best;
}

// The files of BLAS and LAPACK that this process has loaded, as a JSON list.
std::string loaded_blas() {
  std::set<std::string> files;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) continue;
    const std::string name = line.substr(line.rfind('/') + 1);
    for (const char* wanted : {"libblas", "liblapack", "libopenblas"}) {
      if (name.rfind(wanted, 0) == 0) files.insert(line.substr(path));
    }
  }
  std::string list;
  for (const std::string& file : files) list += (list.empty() ? "\"" : ", \"") + file + "\"";
  return "[" + list + "]";
}

void run(const bench::Options& options) {
  const Settings settings{options.text("model", "cnn"),
                          options.number("batch", 64),
                          options.text("layout", "nchw") == "channels_last",
                          options.text("precision", "f32") == "bf16",
                          options.text("gradients", "zeroed") == "dropped",
                          options.real("rate", 1e-6)};
  bench::Problem problem;
  if (!bench::find_problem(settings.model, problem))
    throw std::runtime_error("unknown model: " + settings.model);
  if (options.text("malloc", "default") == "keeps") {
    // By default glibc gives every large tensor back to the kernel when it is freed and gets it
    // back page by page; LibTorch frees and allocates its activations in every step.
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, 64 << 20);
  }
  CountingAllocator counting;
  if (options.number("count-memory", 0) != 0) c10::SetCPUAllocator(&counting, 1);
  at::set_num_threads(static_cast<int>(options.number("threads", 1)));
  at::globalContext().setFlushDenormal(true);
  const size_t base_bytes = bench::process_bytes("VmRSS");
  // Asked for on its own, so that it adds nothing to the memory of a measured process.
  const double gflops = options.number("matmul", 0) != 0 ? matmul_gflops() : 0;
  Training training(settings, problem);
  std::printf(
      "{\"program\": \"LibTorch\", \"version\": \"%s\", \"threads\": %d, \"onednn\": %s, \"blas\": "
      "%s, "
      "\"matmul_gflops\": %.3f}\n",
      TORCH_VERSION, at::get_num_threads(), at::hasMKLDNN() ? "true" : "false",
      loaded_blas().c_str(), gflops);
  std::fflush(stdout);
  bench::serve(training, base_bytes);
}

}  // namespace

int main(int argc, char** argv) { return bench::run_program(argc, argv, run); }
