#include "cluster/worker_place.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>

#include "starling/error.h"

namespace starling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRank = "STARLING_RANK";
constexpr const char* kWorkers = "STARLING_WORKERS";
constexpr const char* kServers = "STARLING_SERVERS";
constexpr const char* kFabric = "STARLING_FABRIC";
constexpr const char* kDescriptor = "STARLING_FD";
constexpr const char* kPorts = "STARLING_PORTS";
constexpr const char* kToken = "STARLING_TOKEN";
constexpr const char* kLinkRate = "STARLING_LINK_RATE";
constexpr const char* kLinkDelay = "STARLING_LINK_DELAY";
constexpr const char* kErrors = "STARLING_ERRORS_FD";
constexpr const char* kControl = "STARLING_CONTROL_FD";
constexpr const char* kApart = "STARLING_APART";
constexpr const char* kCrowded = "STARLING_CROWDED";
constexpr const char* kJoins = "STARLING_JOINS";
constexpr const char* kPatience = "STARLING_PATIENCE_MS";
constexpr const char* kOut = "STARLING_OUT_FD";
constexpr const char* kErr = "STARLING_ERR_FD";
constexpr const char* kLaunched = "STARLING_LAUNCHED_NS";

Error bad(const char* name, const std::string& value) {
  return input_error(fmt::format("{} = \"{}\" in the environment makes no sense", name, value),
                     "start workers with `starling launch` or `starling train --workers`, or "
                     "remove the STARLING_ variables to run alone");
}

template <typename Number = int>
Number number(const char* name, const char* text, Number least, Number most) {
  Number value = -1;
  const char* const end = text == nullptr ? text : text + std::strlen(text);
  if (text == nullptr || std::from_chars(text, end, value).ptr != end || value < least ||
      value > most) {
    throw bad(name, text == nullptr ? "" : text);
  }
  return value;
}

Error bad_ports(const std::string& text, const std::string& why) {
  return input_error(fmt::format("{} = \"{}\" in the environment: {}", kPorts, text, why),
                     "give one for each worker, as 29500,29501; or none, for any that are free");
}

std::vector<uint16_t> ports_of(const std::string& text) {
  std::vector<uint16_t> ports;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    uint16_t port = 0;
    const auto [rest, error] = std::from_chars(word.begin(), word.end(), port);
    if (error != std::errc() || rest != word.end() || port == 0)
      throw bad_ports(text, fmt::format("\"{}\" is no port (1 … 65535)", word));
    ports.push_back(port);
    at = end + 1;
  }
  return ports;
}

std::string to_hex(const JobToken& token) {
  std::string text;
  for (const auto byte : token) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

JobToken token_of(const std::string& text) {
  JobToken token{};
  if (text.size() != 2 * token.size()) throw bad(kToken, text);
  for (size_t i = 0; i < token.size(); ++i) {
    unsigned value = 0;
    const char* const at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) throw bad(kToken, text);
    token[i] = static_cast<JobToken::value_type>(value);
  }
  return token;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> WorkerPlace::variables() const {
  std::vector<std::pair<std::string, std::string>> result = {
      {kRank, fmt::format("{}", rank)},
      {kWorkers, fmt::format("{}", workers)},
      {kFabric, fabric == FabricKind::kShm ? "shm" : "tcp"},
      {kDescriptor, fmt::format("{}", descriptor)},
      {kPatience, fmt::format("{}", patience.count())}};
  if (fabric == FabricKind::kTcp) {
    result.emplace_back(kPorts, fmt::format("{}", fmt::join(ports, ",")));
    result.emplace_back(kToken, to_hex(token));
    if (link.bits_per_second > 0)
      result.emplace_back(kLinkRate, fmt::format("{}bit", link.bits_per_second));
    if (link.delay.count() > 0)
      result.emplace_back(kLinkDelay, fmt::format("{}ns", link.delay.count()));
  }
  if (servers > 0) result.emplace_back(kServers, fmt::format("{}", servers));
  if (apart) result.emplace_back(kApart, "1");
  if (crowded) result.emplace_back(kCrowded, "1");
  if (joins) result.emplace_back(kJoins, "1");
  if (launched)
    result.emplace_back(
        kLaunched, fmt::format("{}", launched->time_since_epoch() / std::chrono::nanoseconds(1)));
  for (const auto& [name, fd] :
       {std::pair{kErrors, errors}, {kControl, control}, {kOut, out}, {kErr, err}}) {
    if (fd >= 0) result.emplace_back(name, fmt::format("{}", fd));
  }
  return result;
}

std::optional<WorkerPlace> WorkerPlace::find(const Lookup& lookup) {
  if (lookup(kRank) == nullptr) return std::nullopt;
  WorkerPlace place;
  place.workers = number(kWorkers, lookup(kWorkers), 1, 1024);
  place.rank = number(kRank, lookup(kRank), 0, place.workers - 1);
  if (const char* const servers = lookup(kServers))
    place.servers = number(kServers, servers, 0, place.workers - 1);
  place.descriptor = number(kDescriptor, lookup(kDescriptor), 0, 1 << 20);
  place.joins = lookup(kJoins) != nullptr;
  if (const char* const text = lookup(kPatience))
    place.patience =
        std::chrono::milliseconds(number<int64_t>(kPatience, text, 1, INT64_MAX / 2'000'000));
  if (const char* const text = lookup(kLaunched))
    place.launched =
        Clock::time_point(std::chrono::nanoseconds(number<int64_t>(kLaunched, text, 0, INT64_MAX)));
  place.apart = lookup(kApart) != nullptr;
  place.crowded = lookup(kCrowded) != nullptr;
  for (const auto& [name, fd] : {std::pair{kErrors, &place.errors},
                                 {kControl, &place.control},
                                 {kOut, &place.out},
                                 {kErr, &place.err}}) {
    if (const char* const text = lookup(name)) *fd = number(name, text, 0, 1 << 20);
  }
  const char* const fabric = lookup(kFabric);
  if (fabric == nullptr) throw bad(kFabric, "");
  if (std::strcmp(fabric, "tcp") == 0) {
    place.fabric = FabricKind::kTcp;
    const char *const ports = lookup(kPorts), *const token = lookup(kToken);
    place.ports = ports_of(ports == nullptr ? "" : ports);
    if (place.ports.size() != static_cast<size_t>(place.workers)) throw bad(kPorts, ports);
    place.token = token_of(token == nullptr ? "" : token);
    const char *const rate = lookup(kLinkRate), *const delay = lookup(kLinkDelay);
    place.link = parse_link(rate == nullptr ? "" : rate, delay == nullptr ? "" : delay);
  } else if (std::strcmp(fabric, "shm") != 0) {
    throw bad(kFabric, fabric);
  }
  return place;
}

std::vector<uint16_t> WorkerPlace::find_ports(const Lookup& lookup, int workers) {
  const char* const text = lookup(kPorts);
  // Those of a worker that has become a launcher itself are in use.
  if (text == nullptr || *text == '\0' || lookup(kRank) != nullptr) return {};
  std::vector<uint16_t> ports = ports_of(text);
  if (ports.size() != static_cast<size_t>(workers))
    throw bad_ports(text, fmt::format("{} ports for {} workers", ports.size(), workers));
  return ports;
}

}  // namespace starling
