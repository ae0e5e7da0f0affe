// echo: measures links. Rank 0 sends messages of a few sizes to each other rank in turn, and each
// comes back before the next is sent. The quickest of a size counts: what is slower was disturbed.
// Of several links the slowest counts.
//
// Little time is spent on a link: a slow one gets fewer messages, though two sizes of them. Rank 0
// says with each message whether it is the link's last.
#pragma once

#include "collective/cost_model.h"
#include "collective/operation.h"

namespace starling {

class Echo final : public Operation {
 public:
  // What is not measured stays as in `costs`, of all ranks: rank 0 writes what it has measured.
  Echo(const Channel& channel, LinkCosts& costs);

 private:
  void go_on() override { rank() == 0 ? measure() : answer(); }
  void measure();
  void answer();
  void begin_link(int peer);
  void send_next();
  void note_time();

  LinkCosts& costs_;
  const LinkCosts costs_before_;
  std::vector<std::byte> out_, in_;
  Stream* send_ = nullptr;  // of the link to peer_, as the other
  Stream* receive_ = nullptr;
  int peer_ = 0;
  Instant link_began_, sent_;
  std::vector<LinkTime> times_;  // of this link
};

}  // namespace starling
