// A program of one's own on several workers:
//
//   starling launch -n 2 -- build/bin/example_fashion_workers
//
// Every worker runs all of it; fit() and evaluate() share the work. The weights are, bit for bit,
// those of the program started by itself. With --synthetic it needs no files.
#include <starling/starling.h>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) try {
  using namespace starling;
  const bool synthetic = argc > 1 && std::strcmp(argv[1], "--synthetic") == 0;
  const data::Dataset train =
      synthetic ? data::synthetic({.samples = 500, .features = {28, 28, 1}, .classes = 10})
                : data::fashion_mnist().train;

  const Cluster cluster = Cluster::from_environment();
  const Sequential model({28, 28, 1}, {flatten(), dense(64, relu), dense(10)});
  Trainer trainer(model, {.loss = softmax_cross_entropy(), .shards = 16, .cluster = cluster});
  const History history = trainer.fit(train, {.epochs = 2, .batch = 64});

  if (!cluster.is_chief()) {
    std::printf("worker %d of %d is done\n", cluster.rank(), cluster.workers());
    return 0;
  }
  std::printf("train loss %.6f\nweights %s\n", history.epochs().back().value("train_loss"),
              trainer.weights_sha256().c_str());
} catch (const starling::Error& error) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
  return error.exit_code();
}
