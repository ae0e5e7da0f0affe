// FabricBase: what the fabrics have in common: the table of transfers, the mailbox, who is gone,
// the counters. A fabric adds how a message gets from one rank to another. One thread.
#pragma once

#include <string>
#include <vector>

#include "fabric/mailbox.h"

namespace starling {

class FabricBase : public Fabric {
 public:
  int rank() const final { return rank_; }
  int world() const final { return world_; }

  Ticket start_send(int peer, Tag tag, std::span<const std::byte> bytes) final;
  Ticket start_receive(int peer, Tag tag, std::span<std::byte> bytes) final;
  Ticket start_receive_up_to(int peer, Tag tag, std::span<std::byte> bytes) final;
  Transfer poll(Ticket ticket) final;
  void cancel(Ticket ticket) final;

  bool gone(int peer) const final;
  std::string why_gone(int peer) const final;
  void mark_gone(int peer) override;
  uint64_t view() const final { return mailbox_.view(); }
  void enter_view(uint64_t view) final;
  void close() final;

  using Fabric::counters;
  Counters counters(int peer) const final;

 protected:
  using Index = TransferTable::Index;

  // `source` as for Mailbox. Requires 0 ≤ rank < world.
  FabricBase(int rank, int world, size_t buffer_bytes_per_peer, InPlaceSource* source);

  // A transfer is about to be started: sim counts these.
  virtual void before_start() {}
  // A send was started: the slot's source, view and transfer are set.
  virtual void begin_send(Index slot) = 0;
  // A send that is not done is given up: nobody holds its ticket any more and its memory will go.
  // The fabric frees the slot, now or when the rest of the message is sent.
  virtual void cancel_send(Index slot) = 0;
  // Fails all sends that are not done, to one peer.
  virtual void fail_sends(int peer, FailureKind failure) = 0;
  // The last act of close(): all has failed, the others are to be told.
  virtual void end_links() = 0;

  // The peer is lost: fails all with it. `why` follows "peer 3". Only the first time counts.
  void lose(int peer, std::string why);
  // The message of a send is with the fabric or the peer: the send is done.
  void finish_send(Index slot);

  bool closed() const { return closed_; }
  TransferTable& table() { return table_; }
  Mailbox& mailbox() { return mailbox_; }

 private:
  Ticket begin_receive(Transfer::Kind kind, int peer, Tag tag, std::span<std::byte> bytes);
  void require_peer(int peer) const;

  const int rank_;
  const int world_;
  bool closed_ = false;
  TransferTable table_;
  std::vector<Counters> counters_;
  Mailbox mailbox_;
  std::vector<std::string> why_gone_;  // empty for those who are there
};

}  // namespace starling
