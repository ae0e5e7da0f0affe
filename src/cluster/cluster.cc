#include "starling/cluster.h"

#include <cstdlib>

#include "base/isa.h"
#include "cluster/world.h"

namespace starling {

Cluster::Cluster() : world_(std::make_shared<World>()) {}

Cluster::Cluster(std::shared_ptr<World> world) : world_(std::move(world)) {}

Cluster Cluster::from_environment() {
  if (const char* const isa = std::getenv("STARLING_ISA"); isa != nullptr && *isa != '\0')
    cap_isa(isa);
  Cluster cluster;
  const auto place =
      WorkerPlace::find([](const char* name) -> const char* { return std::getenv(name); });
  if (place) cluster.world_ = std::make_shared<World>(*place);
  return cluster;
}

int Cluster::rank() const { return world_->rank(); }
int Cluster::workers() const { return world_->workers(); }

}  // namespace starling
