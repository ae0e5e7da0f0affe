#include "strategy/apart.h"

namespace starling {

Apart::Apart(std::string name, World& world, Executor& executor, Ownership owners, Desk& desk)
    : name_(std::move(name)),
      fabric_(*world.fabric()),
      sent_before_(fabric_.counters().bytes_sent),
      executor_(executor),
      desk_(desk),
      rank_(world.rank()),
      workers_(world.workers()),
      owners_(std::move(owners)) {
  if (world.has_desks()) desks_ = Desks(world, desk);
  executor_.use_memory(
      {.board = nullptr, .gradient = [&desk](size_t index) { return desk.stack(index); }});
}

Apart::~Apart() {
  sit(0);
  executor_.use_memory({});
}

void Apart::sit(size_t seat) {
  const Seat& there = desk_.seats()[seat];
  executor_.move_to(there.weights.data(), there.gradient.data());
}

uint64_t Apart::bytes_moved() const {
  return bytes_moved_ + fabric_.counters().bytes_sent - sent_before_;
}

}  // namespace starling
