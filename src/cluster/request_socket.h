// RequestSocket: how people talk to a run that is under way (`starling status`, `join`, …): a
// socket by the name of "control" in the run's folder, which gets a line of words and answers with
// a text. Only the user who runs the job, and root, are answered.
//
// Nothing of the server's side blocks: who connects and says nothing waits alone.
#pragma once

#include <filesystem>
#include <list>
#include <optional>
#include <string>

#include "base/function_ref.h"
#include "fabric/tcp/socket.h"

namespace starling {

class RequestSocket {
 public:
  // Listens. The name that a killed run has left is taken over; throws Error when a run that lives
  // has it, or it can't be made.
  explicit RequestSocket(const std::filesystem::path& folder);
  ~RequestSocket();
  RequestSocket(const RequestSocket&) = delete;
  RequestSocket& operator=(const RequestSocket&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  // Readable when somebody asks.
  int fd() const { return events_.fd(); }
  // Answers all who have asked by now.
  void serve(FunctionRef<std::string(const std::string& request)> answer);

 private:
  void accept_all();
  void watch(int socket) const;

  const std::filesystem::path folder_;
  Socket events_, listener_;
  std::list<Socket> guests_;  // who have connected; the oldest first
};

// What the run in the folder answers; nothing when no run listens there. Throws Error when one does
// but gives no answer in time.
std::optional<std::string> ask_run(const std::filesystem::path& folder, const std::string& request);

}  // namespace starling
