#include "cluster/worker_error.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace starling {
namespace {

// Every record has this length, so that one read never takes part of one, and the kernel writes it
// in one piece.
constexpr size_t kRecordBytes = PIPE_BUF;

struct Head {
  int32_t rank, exit_code, of_another;
  uint32_t message_bytes, hint_bytes;
};

constexpr size_t kTextBytes = kRecordBytes - sizeof(Head);
constexpr size_t kHintBytes = 1000;

// Cut between characters of UTF-8.
std::string_view cut(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

}  // namespace

bool send_worker_error(int pipe, const WorkerError& error) {
  const std::string_view hint = cut(error.hint, kHintBytes),
                         message = cut(error.message, kTextBytes - hint.size());
  const Head head{error.rank, error.exit_code, error.of_another,
                  static_cast<uint32_t>(message.size()), static_cast<uint32_t>(hint.size())};
  std::array<char, kRecordBytes> record{};
  std::memcpy(record.data(), &head, sizeof head);
  message.copy(record.data() + sizeof head, message.size());
  hint.copy(record.data() + sizeof head + message.size(), hint.size());
  return write(pipe, record.data(), record.size()) == static_cast<ssize_t>(record.size());
}

std::vector<WorkerError> receive_worker_errors(int pipe) {
  std::vector<WorkerError> errors;
  std::array<char, kRecordBytes> record;
  while (read(pipe, record.data(), record.size()) == static_cast<ssize_t>(record.size())) {
    Head head;
    std::memcpy(&head, record.data(), sizeof head);
    if (head.message_bytes > kTextBytes || head.hint_bytes > kTextBytes - head.message_bytes)
      continue;
    const char* const text = record.data() + sizeof head;
    errors.push_back({head.rank,
                      head.exit_code,
                      head.of_another != 0,
                      {text, head.message_bytes},
                      {text + head.message_bytes, head.hint_bytes}});
  }
  return errors;
}

std::vector<WorkerError> errors_to_tell(std::vector<WorkerError> errors) {
  const bool has_cause = std::any_of(errors.begin(), errors.end(),
                                     [](const WorkerError& error) { return !error.of_another; });
  if (has_cause) std::erase_if(errors, [](const WorkerError& error) { return error.of_another; });
  std::stable_sort(errors.begin(), errors.end(),
                   [](const WorkerError& a, const WorkerError& b) { return a.rank < b.rank; });
  std::vector<WorkerError> told;
  for (WorkerError& error : errors) {
    const auto same = [&](const WorkerError& other) { return other.message == error.message; };
    if (std::none_of(told.begin(), told.end(), same)) told.push_back(std::move(error));
  }
  return told;
}

}  // namespace starling
