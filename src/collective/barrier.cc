#include "collective/barrier.h"

namespace starling {

void Barrier::go_on() {
  for (; (1 << step_) < world(); ++step_) {
    if (send_ == nullptr) {
      const int distance = 1 << step_;
      receive_ = &add_stream((rank() + world() - distance) % world(), step_, 1);
      send_ = &add_stream((rank() + distance) % world(), step_, 1);
      receive_->receive({});
      send_->send({});
    }
    if (!send_->finished() || !receive_->finished()) return;
    clear_streams();
    send_ = receive_ = nullptr;
  }
  finish();
}

}  // namespace starling
