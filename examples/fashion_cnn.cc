// A convolutional network on Fashion-MNIST: the README's example.
#include <starling/starling.h>

#include <cstdio>

int main() try {
  using namespace starling;
  const auto data = data::fashion_mnist();
  const Sequential model({28, 28, 1}, {conv2d(32, 3, relu), max_pool2d(2), flatten(), dense(10)});
  Trainer trainer(model, {.optimizer = adam(1e-3), .loss = softmax_cross_entropy()});
  trainer.fit(data.train, {.epochs = 3,
                           .batch = 64,
                           .validation = data.test,
                           .callbacks = {early_stopping("val_loss", {.patience = 5})}});
  std::printf("test accuracy %.2f%%\n", 100 * trainer.evaluate(data.test)["accuracy"]);
} catch (const starling::Error& error) {
  std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
  return error.exit_code();
}
