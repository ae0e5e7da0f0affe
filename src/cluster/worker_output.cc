#include "cluster/worker_output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace starling {

void WorkerOutput::pass_on(Print print) {
  if (!pipe_) return;
  int there = 0;
  ioctl(pipe_.fd(), FIONREAD, &there);
  char buffer[4096];
  auto left = static_cast<size_t>(std::max(there, 1));  // none is there at the pipe's end, too
  while (left > 0) {
    const ssize_t count = read(pipe_.fd(), buffer, std::min(left, sizeof buffer));
    if (count == 0) {
      pipe_ = Socket();
      return finish(print);
    }
    if (count < 0) return;
    left -= static_cast<size_t>(count);
    add({buffer, static_cast<size_t>(count)}, print);
  }
}

void WorkerOutput::finish(Print print) {
  pass_on(print);
  if (!line_.empty()) print(std::exchange(line_, {}));
}

void WorkerOutput::add(std::string_view text, Print print) {
  size_t from = line_.size(), begin = 0;  // no line ends before that
  line_ += text;
  const std::string_view all = line_;
  for (size_t end; (end = all.find('\n', from)) != std::string_view::npos; from = begin = end + 1)
    print(all.substr(begin, end - begin));
  for (; all.size() - begin >= kLineMax; begin += kLineMax) print(all.substr(begin, kLineMax));
  line_.erase(0, begin);
}

}  // namespace starling
