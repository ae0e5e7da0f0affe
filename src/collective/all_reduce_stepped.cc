#include "collective/all_reduce_stepped.h"

#include <algorithm>
#include <cstring>

#include "tensor/kernels.h"

namespace starling {

size_t bytes_sent(std::span<const ReduceStep> steps) {
  size_t floats = 0;
  for (const ReduceStep& step : steps) floats += step.send.size();
  return floats * sizeof(float);
}

AllReduceStepped::AllReduceStepped(const char* name, const Channel& channel,
                                   std::vector<ReduceStep> steps, const float* own,
                                   std::span<float> out)
    : Operation(name, channel),
      steps_(std::move(steps)),
      source_(own),
      out_(out),
      chunk_(channel.chunk_bytes / sizeof(float)) {
  // Both sides must count alike, though their ranges differ: by the whole vector.
  tags_per_step_ = std::max<Tag>(1, chunk_count(out.size(), chunk_));
  size_t largest = 0;
  for (const ReduceStep& step : steps_) {
    if (step.add) largest = std::max(largest, step.receive.size());
  }
  if (largest > 0) received_ = Buffer<float>(std::min(largest, channel.window * chunk_));
}

float* AllReduceStepped::place(size_t chunk) {
  return received_.data() + chunk % channel().window * chunk_;
}

void AllReduceStepped::begin_step() {
  const ReduceStep& now = steps_[step_];
  const Tag offset = step_ * tags_per_step_;
  taken_ = 0;
  receive_ = &add_stream(now.from, offset, chunk_count(now.receive.size(), chunk_));
  send_ = &add_stream(now.to, offset, chunk_count(now.send.size(), chunk_));
}

void AllReduceStepped::take_chunk(const ReduceStep& now) {
  const Span at = chunk_of(now.receive, chunk_, taken_);
  if (now.add) {
    const float* own = source_ + at.begin;
    const float* came = place(taken_);
    add(static_cast<int64_t>(at.size()), now.own_left ? own : came, now.own_left ? came : own,
        out_.data() + at.begin);
  }
  ++taken_;
}

void AllReduceStepped::go_on() {
  if (steps_.empty() && !out_.empty() && source_ != out_.data()) {
    std::memcpy(out_.data(), source_, out_.size_bytes());
  }
  while (step_ < steps_.size()) {
    if (send_ == nullptr) begin_step();
    const ReduceStep& now = steps_[step_];
    while (taken_ < receive_->done()) take_chunk(now);
    while (receive_->can_start() && receive_->started() < taken_ + channel().window) {
      const size_t k = receive_->started();
      const Span at = chunk_of(now.receive, chunk_, k);
      float* target = now.add ? place(k) : out_.data() + at.begin;
      receive_->receive(std::as_writable_bytes(std::span(target, at.size())));
    }
    while (send_->can_start()) {
      const Span at = chunk_of(now.send, chunk_, send_->started());
      send_->send(std::as_bytes(std::span(source_ + at.begin, at.size())));
    }
    if (!send_->finished() || !receive_->finished() || taken_ < receive_->count()) return;
    clear_streams();
    send_ = receive_ = nullptr;
    ++step_;
    source_ = out_.data();
  }
  finish();
}

}  // namespace starling
