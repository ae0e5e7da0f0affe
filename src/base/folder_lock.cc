#include "base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "base/atomic_file.h"

namespace starling {

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) throw write_error(folder, errno);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
    state_ = State::kHeld;
  } else {
    state_ = errno == EWOULDBLOCK ? State::kTaken : State::kUnknown;
  }
}

FolderLock::~FolderLock() {
  if (is_held()) flock(descriptor_, LOCK_UN);  // also for processes forked meanwhile
  close(descriptor_);
}

}  // namespace starling
