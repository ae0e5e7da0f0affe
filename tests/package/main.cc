// Trains for an epoch through the installed package and prints the hash of the weights; twice, to
// see that the hash is that of the job.
#include <starling/starling.h>

#include <cstdio>
#include <string>

namespace {

std::string train() {
  using namespace starling;
  const auto dataset = data::synthetic({.samples = 256, .features = {16}, .classes = 4});
  const Sequential model({16}, {dense(32, relu), dense(4)});
  Trainer trainer(model, {.optimizer = adam(1e-2), .loss = softmax_cross_entropy(), .lanes = 2});
  trainer.fit(dataset, {.epochs = 1, .batch = 32});
  return trainer.weights_sha256();
}

}  // namespace

int main() try {
  const std::string hash = train();
  std::printf("starling %s trained weights %s\n", starling::version(), hash.c_str());
  return hash.size() == 64 && hash == train() ? 0 : 1;
} catch (const starling::Error& error) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
  return error.exit_code();
}
