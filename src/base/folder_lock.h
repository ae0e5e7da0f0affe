// FolderLock: the right to write in a folder, which one process has at a time. It ends with its
// process. Not a file that is removed with its lock: another might have opened it just before.
#pragma once

#include <cstdint>
#include <filesystem>

namespace starling {

class FolderLock {
 public:
  // Does not wait. Throws Error when the folder can't be opened.
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  bool is_held() const { return state_ == State::kHeld; }
  // Whether another has it. Neither is true in a file system without locks.
  bool is_taken() const { return state_ == State::kTaken; }

 private:
  enum class State : uint8_t { kHeld, kTaken, kUnknown };

  int descriptor_;
  State state_;
};

}  // namespace starling
