// SimFabric: one rank's side of a SimWorld, which owns it.
#pragma once

#include "fabric/fabric_base.h"

namespace starling {

class SimCore;

class SimFabric final : public FabricBase, private InPlaceSource {
 public:
  SimFabric(SimCore& core, int rank, int world);
  ~SimFabric() override;

  Instant now() const override;
  bool progress(Instant deadline) override;
  void wake() override;

  // For SimCore: what arrives.
  void deliver(int from, Tag tag, uint64_t view, std::span<const std::byte> bytes);
  void deliver_in_place(int from, Tag tag, uint64_t view, size_t length, uint64_t message);
  // The send is done; `sent` is what its memory must still hold.
  void send_done(Index slot, std::span<const std::byte> sent);
  void lose_peer(int peer, const char* why) { lose(peer, why); }
  bool has_ended() const { return closed(); }
  bool take_changed() { return table().take_changed(); }
  void note_change() { table().note_change(); }

 private:
  void before_start() override;
  void begin_send(Index slot) override;
  void cancel_send(Index slot) override;
  void fail_sends(int peer, FailureKind failure) override;
  void end_links() override;
  bool fetch(int peer, uint64_t handle, std::span<std::byte> target) override;
  void discard(int peer, uint64_t handle) override;

  SimCore& core_;
  std::vector<SlotList> sending_;  // by peer
};

}  // namespace starling
