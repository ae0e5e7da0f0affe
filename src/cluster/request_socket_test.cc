#include "cluster/request_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "base/atomic_file_testing.h"
#include "base/service_thread.h"
#include "cluster/run_status.h"
#include "starling/error.h"

namespace starling {
namespace {

namespace fs = std::filesystem;
using testing::Eq;
using testing::Optional;

// Says everything again, until it goes.
class Echo {
 public:
  explicit Echo(const fs::path& folder)
      : socket_(folder), thread_("echo", [this](int quit) {
          while (true) {
            pollfd polled[] = {{socket_.fd(), POLLIN, 0}, {quit, POLLIN, 0}};
            poll(polled, 2, -1);
            if (polled[1].revents != 0) return;
            socket_.serve([](const std::string& words) { return "heard " + words; });
          }
        }) {}

 private:
  RequestSocket socket_;
  ServiceThread thread_;
};

Socket connected(const fs::path& folder) {
  Socket socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  (folder / "control").string().copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

TEST(RequestSocket, AnswersWhereverTheFolderIs) {
  const TemporaryFolder temporary;
  const fs::path deep = temporary.path() / std::string(120, 'a') / std::string(120, 'b');
  fs::create_directories(deep);
  EXPECT_EQ(ask_run(deep, "status"), std::nullopt);
  {
    const Echo run(deep);
    EXPECT_THAT(ask_run(deep, "status"), Optional(Eq("heard status")));
    EXPECT_EQ(fs::status(deep / "control").permissions(),
              fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_EQ(ask_run(deep, "status"), std::nullopt);
  EXPECT_TRUE(fs::is_empty(deep));
  EXPECT_EQ(ask_run(temporary.path() / "nowhere", "status"), std::nullopt);
}

TEST(RequestSocket, WhoSaysNothingOrTooMuchKeepsNobodyFromAsking) {
  const TemporaryFolder folder;
  const Echo run(folder.path());
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connected(folder.path()));
  EXPECT_THAT(ask_run(folder.path(), "status"), Optional(Eq("heard status")));
  const Socket talker = connected(folder.path());
  const std::string much(100'000, 'x');
  EXPECT_GT(::send(talker.fd(), much.data(), much.size(), 0), 0);
  { const Socket gone = connected(folder.path()); }
  EXPECT_THAT(ask_run(folder.path(), std::string(10'000, 'y')),
              Optional(Eq("heard " + std::string(256, 'y'))));
}

TEST(RequestSocket, ANameIsTakenOverFromTheDeadAlone) {
  const TemporaryFolder folder;
  const fs::path name = folder.path() / "control";
  {
    const Echo run(folder.path());
    EXPECT_THROW(RequestSocket second(folder.path()), Error);
  }
  {  // as a killed run leaves it
    const Socket dead(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    name.string().copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(dead.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_TRUE(fs::exists(name));
  {
    const Echo run(folder.path());
    EXPECT_THAT(ask_run(folder.path(), "a"), Optional(Eq("heard a")));
  }
  std::ofstream(name) << "a user's own";
  EXPECT_EQ(ask_run(folder.path(), "a"), std::nullopt);
  EXPECT_THROW(RequestSocket third(folder.path()), Error);
  EXPECT_TRUE(fs::is_regular_file(name)) << "it is not ours";
}

TEST(RunStatus, GivesBackWhatWasSaid) {
  const RunStatus status{.state = "waiting",
                         .view = 3,
                         .step = 7,
                         .steps = 9,
                         .min_workers = 2,
                         .seconds = 1.5,
                         .workers = {{.worker = 4, .process = 5, .state = "working", .step = 7}}};
  const RunStatus again = RunStatus::from_json(parse_json(to_text(status.to_json())));
  EXPECT_EQ(to_text(again.to_json()), to_text(status.to_json()));
  EXPECT_EQ(again.working(), 1);
  ASSERT_NE(again.find(4), nullptr);
  EXPECT_EQ(again.find(0), nullptr);
  for (const char* text : {"", "3", "{}", "[1]", R"({"state": 1})"})
    EXPECT_THROW(RunStatus::from_json(parse_json(text)), Error) << text;
}

}  // namespace
}  // namespace starling
