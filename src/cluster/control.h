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
    kBeat,     // worker → launcher: alive, and this far
    kCommit,   // either way: see commit.h
    kHere,     // newcomer → launcher: ready to take part
    kChange,   // launcher → workers: pause after a step, for workers to join or leave
    kPaused,   // worker → launcher: done
    kFolder,   // chief → launcher: `news` is the run's folder, `progress` the most workers there
               // can be
    kSuspect,  // worker → launcher: worker `progress` does not answer
    kFault,    // worker → launcher: a planned fault happens to it now, at `time`
    kStretch,  // chief → launcher: workers train apart now, as `words` say (param/conductor.h)
    kPushed,   // worker → launcher: a gradient is on all servers
    kDrain,    // worker → launcher: the stretch is to end soon
    kOrders,   // launcher → workers: what the conductor says
  };

  // Of a worker that was lost; the times are of the host's steady clock, in nanoseconds.
  struct Loss {
    int64_t worker;
    int64_t happened;  // 0: nobody knows
    int64_t noticed;
  };

  Kind kind = Kind::kBeat;
  uint64_t progress = 0;         // of kBeat: changes while the worker gets on
  uint64_t step = 0, steps = 0;  // of kBeat: where it is in the run
  int64_t time = 0;
  commit::Message commit;
  std::vector<uint64_t> words;  // of kStretch, kPushed and kOrders: param/orders_words.h
  // With Prepare: who was lost and how, for a person.
  std::string news;
  std::vector<Loss> losses;
  // With Resume: by what the members talk in the new view.
  Socket segment;               // shm
  std::vector<uint16_t> ports;  // tcp, by place in commit.members
  std::vector<int> servers;     // those of the members that serve and compute nothing
};

// What a message may have, in bytes: room for one order that has a gradient of each of 1024
// workers, and less than the kernel holds for a socket (net.core.wmem_default, 208 KiB).
constexpr size_t kControlBytesMost = 192 << 10;

// Both ends, closed on exec. Throws Error when there are none to be had.
std::pair<Socket, Socket> control_sockets();

// False when the other end is gone, or has not listened for so long that it holds no more. Throws
// Error when the message is longer than one may be.
bool send_control(int socket, const ControlMessage& message);
// The next, if one has come. `ended` becomes true when no more will come.
std::optional<ControlMessage> receive_control(int socket, bool& ended);

}  // namespace starling
