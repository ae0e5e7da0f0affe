// Control: what a launcher and each of its workers say to one another, over a socket of the two.
// The worker beats, so that a frozen one is noticed, and both carry on the protocol of commit.h
// that makes a new view when a worker is lost.
//
// Messages are whole or not there (SOCK_SEQPACKET). Nothing here blocks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/commit.h"
#include "fabric/tcp/socket.h"

namespace starling {

struct ControlMessage {
  enum class Kind : uint8_t {
    kBeat,    // worker → launcher: alive, and this far
    kCommit,  // either way: see commit.h
    kHere,    // newcomer → launcher: ready to take part
    kChange,  // launcher → workers: pause after a step, others are to take part
    kPaused,  // worker → launcher: done
  };

  Kind kind = Kind::kBeat;
  uint64_t progress = 0;  // of kBeat: changes while the worker gets on
  commit::Message commit;
  // With Prepare: who was lost and how, for a person.
  std::string news;
  // With Resume: by what the members talk in the new view.
  Socket segment;               // shm
  std::vector<uint16_t> ports;  // tcp, by place in commit.members
};

// Both ends, closed on exec. Throws Error when there are none to be had.
std::pair<Socket, Socket> control_sockets();

// False when the other end is gone, or has not listened for so long that it holds no more.
bool send_control(int socket, const ControlMessage& message);
// The next, if one has come. `ended` becomes true when no more will come.
std::optional<ControlMessage> receive_control(int socket, bool& ended);

}  // namespace starling
