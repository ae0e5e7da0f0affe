// Model: layers that have been put together; a description without weights. Trainer gives it
// weights. Cheap to copy, immutable.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "starling/layer.h"

namespace starling {

class Model {
 public:
  // Everything between `input` and `output`. Throws Error when the output does not depend on the
  // input, or another input is needed.
  Model(const Symbol& input, const Symbol& output);

  Shape input_shape() const;
  Shape output_shape() const;
  // Trainable numbers.
  int64_t parameter_count() const;
  // A table of layers, shapes, parameters and cost.
  std::string summary() const;

  const Graph& graph() const { return *graph_; }

 protected:
  Model() = default;
  std::shared_ptr<const Graph> graph_;
};

// Layers one after another.
class Sequential : public Model {
 public:
  Sequential(const Shape& input, const std::vector<Layer>& layers);
};

}  // namespace starling
