#include "train/state.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "optim/initializers.h"
#include "optim/update.h"
#include "starling/error.h"
#include "train/state_transfer.h"

namespace starling {
namespace {

constexpr size_t kPageFloats = 4096 / sizeof(float);

// One stretch of flat memory under a name.
struct Place {
  std::string name;
  Shape shape;
  float* floats;
};

std::vector<NamedTensor> copy_out(const std::vector<Place>& places) {
  std::vector<NamedTensor> tensors;
  for (const Place& place : places) {
    tensors.push_back(
        {place.name, place.shape, {place.floats, place.floats + place.shape.elements()}});
  }
  return tensors;
}

// The tensors in the order of the places; throws when they are not just these.
std::vector<const NamedTensor*> match(const char* what, const std::vector<NamedTensor>& tensors,
                                      const std::vector<Place>& places) {
  std::map<std::string, const NamedTensor*> by_name;
  for (const NamedTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  std::vector<const NamedTensor*> matched;
  for (const Place& place : places) {
    const auto found = by_name.find(place.name);
    if (found == by_name.end()) {
      throw input_error(
          fmt::format("the file has no {} \"{}\", which the model needs", what, place.name),
          "load a file that was saved from a model with the same layers");
    }
    if (found->second->shape != place.shape) {
      throw input_error(
          fmt::format("{} \"{}\" has the shape {} in the file and {} in the model", what,
                      place.name, found->second->shape.to_string(), place.shape.to_string()),
          "load a file that was saved from a model with the same layers");
    }
    matched.push_back(found->second);
    by_name.erase(found);
  }
  if (!by_name.empty()) {
    throw input_error(fmt::format("the file has a {} \"{}\", which the model does not have", what,
                                  by_name.begin()->first),
                      "load a file that was saved from a model with the same layers");
  }
  return matched;
}

void copy_in(const char* what, const std::vector<NamedTensor>& tensors,
             const std::vector<Place>& places) {
  const std::vector<const NamedTensor*> matched = match(what, tensors, places);
  for (size_t i = 0; i < places.size(); ++i)
    std::copy_n(matched[i]->values.begin(), places[i].shape.elements(), places[i].floats);
}

std::vector<Place> weight_places(const TrainState& state) {
  std::vector<Place> places;
  for (const Slice& slice : state.space.slices()) {
    places.push_back(
        {slice.name, slice.shape, const_cast<float*>(state.weights.data()) + slice.offset});
  }
  return places;
}

// Kind by kind; the floats are where `whole` has them, if it is given.
std::vector<Place> optimizer_places(const TrainState& state, const OptimizerState* whole) {
  std::vector<Place> places;
  for (size_t kind = 0; kind < state.optimizer.kinds(); ++kind) {
    const std::string suffix =
        fmt::format("/{}", state_name(state.optimizer_kind, static_cast<int>(kind)));
    for (const Slice& slice : state.space.slices()) {
      const float* const at = whole == nullptr ? nullptr : whole->at(kind, slice.offset);
      places.push_back({slice.name + suffix, slice.shape, const_cast<float*>(at)});
    }
  }
  return places;
}

std::vector<Place> statistics_places(const TrainState& state) {
  std::vector<Place> places;
  for (const MomentsLayout::Entry& entry : state.moments.entries()) {
    float* mean = const_cast<float*>(state.statistics.data()) + entry.offset;
    places.push_back({entry.name + ".running_mean", {entry.spec.channels}, mean});
    places.push_back(
        {entry.name + ".running_variance", {entry.spec.channels}, mean + entry.spec.channels});
  }
  return places;
}

}  // namespace

ParameterSpace parameter_space(const Graph& graph) {
  ParameterSpace space;
  // The backward pass goes through the layers from the last to the first, and inside a layer
  // finishes the bias before the weights.
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    const std::vector<ParameterSpec>& parameters = node.parameters;
    for (size_t p = parameters.size(); p-- > 0;) {
      const ParameterSpec& spec = parameters[p];
      space.add(spec.name, spec.shape,
                {.weight_decay = spec.decay && node.trainable ? spec.weight_decay : 0.0,
                 .initializer = spec.initializer,
                 .fan_in = spec.fan_in,
                 .fan_out = spec.fan_out});
    }
  }
  return space;
}

TrainState::TrainState(const Graph& graph, const Optimizer& description, uint64_t seed)
    : optimizer_kind(description.kind), space(parameter_space(graph)), moments(graph) {
  lay_out(World(), {});
  draw_weights(seed);
}

TrainState::TrainState(const Graph& graph, const Optimizer& description, uint64_t seed,
                       World& world, const Options& options)
    : optimizer_kind(description.kind),
      space(parameter_space(graph)),
      moments(graph),
      options_(options) {
  if (world.is_newcomer()) {
    join(world);
    return;
  }
  world.agree("drawing the initial weights", [&] {
    world.require_same("model", layout_text());
    make(world);
    if (!world.shares_memory() || world.is_chief()) draw_weights(seed);
    world.barrier("drawing the initial weights");
  });
}

namespace {

// Of shared memory, in this order: arrays of weights and optimizer state, statistics, journal.
size_t state_floats(const ParameterSpace& space, const MomentsLayout& moments, size_t kinds) {
  return (1 + kinds) * round_up(space.total_floats(), kPageFloats) +
         round_up(moments.size(), kPageFloats);
}

}  // namespace

TrainState::~TrainState() = default;

std::string TrainState::layout_text() const {
  std::string text = fmt::format("optimizer {}\nlanes {}\nseats {}\n",
                                 optimizer_name(optimizer_kind), options_.lanes, options_.seats);
  const std::span<const Slice> slices = space.slices();
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice)  // from the first layer on
    text += fmt::format("{} {}\n", slice->name, slice->shape.to_string());
  for (const MomentsLayout::Entry& entry : moments.entries())
    text += fmt::format("{} {} channels\n", entry.name, entry.spec.channels);
  return text;
}

void TrainState::make(World& world) {
  const auto kinds = static_cast<size_t>(state_count(optimizer_kind));
  std::optional<SharedSegment> segment;
  slots_ = 0;
  if (world.shares_memory()) {
    if (world.survives())
      slots_ = static_cast<size_t>(world.capacity()) * static_cast<size_t>(options_.lanes);
    const size_t journal_bytes =
        slots_ == 0 ? 0 : UpdateJournal::bytes(space, moments.size(), slots_);
    segment.emplace(world.share(
        "starling state", state_floats(space, moments, kinds) * sizeof(float) + journal_bytes));
  }
  lay_out(world, std::move(segment));
}

void TrainState::join(World& world) {
  world.join();
  std::optional<SharedSegment> segment;
  world.take_state([&](int donor, std::vector<std::byte> state) {
    given = std::make_unique<Snapshot>(unpack_snapshot(state));
    if (!world.shares_memory()) return;
    const Json& place = given->manifest.at("shared");
    slots_ = place.at("slots").get<size_t>();
    segment.emplace(world.open_shared(donor, place.at("process").get<int64_t>(),
                                      place.at("descriptor").get<int64_t>()));
  });
  lay_out(world, std::move(segment));
}

std::optional<TrainState::SharedPlace> TrainState::shared_place() const {
  if (!shared_) return std::nullopt;
  return SharedPlace{getpid(), shared_->fd(), slots_};
}

void TrainState::lay_out(const World& world, std::optional<SharedSegment> segment) {
  const auto kinds = static_cast<size_t>(state_count(optimizer_kind));
  journal_.reset();
  shared_ = std::move(segment);
  float* at = shared_ ? reinterpret_cast<float*>(shared_->bytes().data()) : nullptr;
  const auto array = [&](size_t floats) {
    if (at == nullptr) return Buffer<float>(floats);
    float* const begin = at;
    at += round_up(floats, kPageFloats);
    return Buffer<float>::view(begin, floats);
  };
  desk_.reset();
  if (options_.seats > 0) desk_.emplace(space.total_floats(), options_.seats);
  weights = desk_ ? Buffer<float>::view(desk_->seats()[0].weights.data(), space.total_floats())
                  : array(space.total_floats());
  optimizer = OptimizerState(kinds);
  UpdateJournal::State state{&space, {weights.data()}, {}};
  if (!splits_optimizer()) {
    std::vector<Buffer<float>> arrays;
    for (size_t kind = 0; kind < kinds; ++kind) {
      arrays.push_back(array(space.total_floats()));
      state.arrays.push_back(arrays.back().data());
    }
    optimizer.add_run({0, space.total_floats()}, std::move(arrays));
  }
  statistics = array(moments.size());
  if (options_.has_outer) outer = Buffer<float>(space.total_floats());
  state.statistics = statistics.span();
  if (!shared_ || !world.survives()) return;
  journal_.emplace(
      state, shared_->bytes().subspan(state_floats(space, moments, kinds) * sizeof(float)), slots_);
}

void TrainState::split(const Ownership& owners, OptimizerState own) {
  owners_ = owners;
  optimizer = std::move(own);
}

void TrainState::draw_weights(uint64_t seed) {
  for (const Slice& slice : space.slices()) initialize(slice, seed, weights.data() + slice.offset);
  moments.initialize(statistics.span());
}

std::vector<NamedTensor> TrainState::weight_tensors() const {
  return copy_out(weight_places(*this));
}
std::vector<NamedTensor> TrainState::optimizer_tensors(const OptimizerState& whole) const {
  return copy_out(optimizer_places(*this, &whole));
}
std::vector<NamedTensor> TrainState::statistics_tensors() const {
  return copy_out(statistics_places(*this));
}

void TrainState::load_weights(const std::vector<NamedTensor>& tensors) {
  copy_in("parameter", tensors, weight_places(*this));
}
void TrainState::load_optimizer(const std::vector<NamedTensor>& tensors) {
  const std::vector<const NamedTensor*> matched =
      match("optimizer state", tensors, optimizer_places(*this, nullptr));
  const std::span<const Slice> slices = space.slices();
  for (size_t i = 0; i < matched.size(); ++i)
    optimizer.take(i / slices.size(), slices[i % slices.size()].offset, matched[i]->values);
}
void TrainState::load_statistics(const std::vector<NamedTensor>& tensors) {
  copy_in("statistic", tensors, statistics_places(*this));
}

}  // namespace starling
