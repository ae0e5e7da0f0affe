#include "collective/stream.h"

namespace starling {

void Stream::send(std::span<const std::byte> bytes) {
  pending_.push_back(fabric_->start_send(options_.peer, next_tag(), bytes));
}

void Stream::receive(std::span<std::byte> bytes) {
  pending_.push_back(fabric_->start_receive(options_.peer, next_tag(), bytes));
}

bool Stream::poll() {
  bool moved = false;
  last_.reset();
  while (!pending_.empty() && !failure_) {
    const Transfer transfer = fabric_->poll(pending_.front());
    if (transfer.pending()) {
      last_ = transfer;
      break;
    }
    pending_.pop_front();
    if (transfer.failed()) {
      failure_ = transfer;
    } else {
      ++done_;
      moved = true;
    }
  }
  return moved;
}

void Stream::cancel() {
  for (const Ticket ticket : pending_) fabric_->cancel(ticket);
  pending_.clear();
}

}  // namespace starling
