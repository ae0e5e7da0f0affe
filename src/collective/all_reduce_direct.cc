#include "collective/all_reduce_direct.h"

namespace starling {
namespace {

constexpr const char* kName = "all_reduce_direct";

ReduceScatter::Arguments scatter_arguments(const Channel& channel,
                                           const AllReduceDirect::Arguments& arguments) {
  std::vector<size_t> cuts =
      slice_cuts(arguments.out.size(), static_cast<size_t>(channel.world()), arguments.slice_unit);
  float* slice = arguments.out.data() + cuts[static_cast<size_t>(channel.rank())];
  return {arguments.placement, arguments.partials, std::move(cuts), slice};
}

AllGather::Arguments gather_arguments(const Channel& channel,
                                      const AllReduceDirect::Arguments& arguments) {
  std::vector<size_t> cuts =
      slice_cuts(arguments.out.size(), static_cast<size_t>(channel.world()), arguments.slice_unit);
  for (size_t& cut : cuts) cut *= sizeof(float);
  return {std::as_writable_bytes(arguments.out), std::move(cuts), true};
}

// Half of the operation's tags are the gather's.
Channel gather_channel(Channel channel) {
  channel.tag += kTagsPerOperation / 2;
  return channel;
}

}  // namespace

AllReduceDirect::AllReduceDirect(const Channel& channel, const Arguments& arguments)
    : Operation(kName, channel),
      scatter_(channel, scatter_arguments(channel, arguments), kName),
      gather_(gather_channel(channel), gather_arguments(channel, arguments), kName) {}

void AllReduceDirect::go_on() {
  if (scatter_.advance() == State::kFailed) return fail_as(scatter_);
  gather_.set_ready(scatter_.chunks_summed());
  // A slice of the result may lie where the partials of it are still being sent from.
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) gather_.set_free(peer, scatter_.chunks_sent(peer));
  }
  if (gather_.advance() == State::kFailed) return fail_as(gather_);
  if (scatter_.state() == State::kDone && gather_.state() == State::kDone) finish();
}

std::optional<Transfer> AllReduceDirect::waiting() const {
  const std::optional<Transfer> first = scatter_.waiting();
  return first ? first : gather_.waiting();
}

void AllReduceDirect::abandon() {
  scatter_.abandon();
  gather_.abandon();
}

}  // namespace starling
