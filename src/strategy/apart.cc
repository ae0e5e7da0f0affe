#include "strategy/apart.h"

namespace starling {

Apart::Apart(World& world, Executor& executor, Ownership owners, Desk* desk)
    : fabric_(*world.fabric()),
      executor_(executor),
      rank_(world.rank()),
      workers_(world.workers()),
      owners_(std::move(owners)) {
  if (desk == nullptr) return;
  desks_ = Desks(world, *desk);
  executor_.use_memory(
      {.board = nullptr, .gradient = [desk](size_t index) { return desk->stack(index); }});
}

Apart::~Apart() {
  if (!desks_.empty()) executor_.use_memory({});
}

uint64_t Apart::bytes_moved() const { return bytes_moved_ + fabric_.counters().bytes_sent; }

}  // namespace starling
