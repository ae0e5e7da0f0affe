#include "param/record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <optional>
#include <type_traits>

#include "base/sha256.h"
#include "starling/error.h"

namespace starling {
namespace {

constexpr int kShardsMost = 1024;
constexpr std::string_view kHeader = "starling-record 1\n";

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  while (true) {
    const size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
}

template <typename T>
std::optional<std::vector<T>> numbers_of(const std::vector<std::string_view>& words) {
  std::vector<T> values;
  for (const std::string_view word : words) {
    const std::optional<T> value = number_of<T>(word);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

// One walk over the fields serves both directions.
template <typename Visitor, typename Described>
void visit_fields(Visitor& visitor, Described& optimizer) {
  visitor.visit("learning_rate", optimizer.learning_rate);
  visitor.visit("momentum", optimizer.momentum);
  visitor.visit("beta1", optimizer.beta1);
  visitor.visit("beta2", optimizer.beta2);
  visitor.visit("epsilon", optimizer.epsilon);
  visitor.visit("weight_decay", optimizer.weight_decay);
  visitor.visit("clip_value", optimizer.clip_value);
  visitor.visit("clip_norm", optimizer.clip_norm);
  visitor.visit("warmup_steps", optimizer.schedule.warmup_steps);
  visitor.visit("every", optimizer.schedule.every);
  visitor.visit("milestones", optimizer.schedule.milestones);
  visitor.visit("gamma", optimizer.schedule.gamma);
  visitor.visit("floor", optimizer.schedule.floor);
}

struct FieldWriter {
  std::string text;

  template <typename T>
  void visit(const char* key, const T& value) {
    text += fmt::format(" {}={}", key, value);  // the shortest that is read as the same number
  }
  void visit(const char* key, const std::optional<double>& value) {
    if (value) visit(key, *value);
  }
  void visit(const char* key, const std::vector<uint64_t>& values) {
    if (!values.empty()) visit(key, fmt::format("{}", fmt::join(values, ",")));
  }
};

struct FieldReader {
  std::map<std::string_view, std::string_view> values;
  bool good = true;

  template <typename T>
  void visit(const char* key, T& into) {
    const auto found = values.extract(key);
    const auto value = found ? number_of<T>(found.mapped()) : std::nullopt;
    good = good && value;
    if (value) into = *value;
  }
  void visit(const char* key, std::optional<double>& into) {
    if (values.contains(key)) visit(key, into.emplace());
  }
  void visit(const char* key, std::vector<uint64_t>& into) {
    const auto found = values.extract(key);
    if (!found) return;
    const auto numbers = numbers_of<uint64_t>(split(found.mapped(), ','));
    good = good && numbers;
    if (numbers) into = *numbers;
  }
};

std::string optimizer_text(const Optimizer& optimizer) {
  FieldWriter writer;
  visit_fields(writer, optimizer);
  return fmt::format("optimizer {} schedule={}{}\n", optimizer_name(optimizer.kind),
                     schedule_name(optimizer.schedule.kind), writer.text);
}

std::optional<Optimizer> optimizer_of(const std::vector<std::string_view>& words) {
  FieldReader reader;
  for (size_t i = 2; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    reader.values[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  const auto schedule = reader.values.extract("schedule");
  if (words.size() < 2 || !schedule) return std::nullopt;
  try {
    Optimizer optimizer = optimizer_from_name(words[1]);
    optimizer.schedule.kind = schedule_from_name(schedule.mapped());
    visit_fields(reader, optimizer);
    validate(optimizer);
    return reader.good && reader.values.empty() ? std::optional(optimizer) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string push_text(const Push& push) {
  return fmt::format(" {}:{}-{}@{}{}", push.worker, push.samples.begin, push.samples.end,
                     push.version, push.finite ? "" : "!");
}

std::optional<Push> push_of(std::string_view text) {
  Push push;
  push.finite = !text.ends_with('!');
  if (!push.finite) text.remove_suffix(1);
  const size_t colon = text.find(':'), dash = text.find('-'), at = text.find('@');
  if (colon > dash || dash > at || at == std::string_view::npos) return std::nullopt;
  const auto worker = number_of<int>(text.substr(0, colon));
  const auto begin = number_of<uint64_t>(text.substr(colon + 1, dash - colon - 1));
  const auto end = number_of<uint64_t>(text.substr(dash + 1, at - dash - 1));
  const auto version = number_of<uint64_t>(text.substr(at + 1));
  if (!worker || !begin || !end || !version) return std::nullopt;
  push.worker = *worker;
  push.samples = {*begin, *end};
  push.version = *version;
  return push;
}

std::string order_text(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kLend:
      return fmt::format("lend {} {} {}\n", order.worker, order.samples.begin, order.samples.end);
    case Order::Kind::kApply: {
      std::string text = "apply";
      for (const Push& push : order.pushes) text += push_text(push);
      return text + '\n';
    }
    case Order::Kind::kDrop:
      return fmt::format("drop {}\n", order.worker);
    case Order::Kind::kMeet:
    case Order::Kind::kAdd:  // of steps that workers make by themselves: not recorded
    case Order::Kind::kOver:
      break;
  }
  return {};
}

// What is wrong with the orders, one after another; nothing when they can be obeyed.
std::string fault_in(const RecordedStretch& stretch) {
  struct Lent {
    SampleRange samples;
    uint64_t version;
  };
  std::map<int, std::deque<Lent>> lent;  // by worker
  uint64_t version = stretch.version;
  for (const Order& order : stretch.log) {
    if (order.kind == Order::Kind::kLend) {
      const auto& workers = stretch.workers;
      const bool is_known =
          std::find(workers.begin(), workers.end(), order.worker) != workers.end();
      if (!is_known || order.samples.begin >= order.samples.end ||
          lent[order.worker].size() > kAheadMost) {
        return fmt::format("worker {} can't be lent samples {} … {} after {} updates", order.worker,
                           order.samples.begin, order.samples.end, version);
      }
      lent[order.worker].push_back({order.samples, version});
    }
    if (order.kind == Order::Kind::kDrop) {
      if (lent[order.worker].empty())
        return fmt::format("worker {} has no gradient to drop after {} updates", order.worker,
                           version);
      lent[order.worker].pop_front();
    }
    if (order.kind != Order::Kind::kApply) continue;
    for (const Push& push : order.pushes) {
      std::deque<Lent>& of_worker = lent[push.worker];
      if (of_worker.empty() || of_worker.front().samples != push.samples ||
          of_worker.front().version != push.version) {
        return fmt::format(
            "the gradient of worker {} that makes update {} is not of what it "
            "was lent",
            push.worker, version + 1);
      }
      of_worker.pop_front();
    }
    ++version;
  }
  return {};
}

}  // namespace

uint64_t RecordedStretch::end_version() const {
  return version +
         static_cast<uint64_t>(std::count_if(log.begin(), log.end(), [](const Order& order) {
           return order.kind == Order::Kind::kApply;
         }));
}

std::string record_header() { return std::string(kHeader); }

std::string to_text(const RecordedStretch& stretch) {
  std::string text =
      fmt::format("stretch {} {} {}\nshards {}\nnumbers {}\n{}update {} {} {}\nworkers {}\n",
                  stretch.epoch, stretch.version, stretch.epochs, stretch.shards, stretch.numbers,
                  optimizer_text(stretch.optimizer), stretch.usual, stretch.apart, stretch.damping,
                  fmt::join(stretch.workers, " "));
  for (const Order& order : stretch.log) text += order_text(order);
  text +=
      fmt::format("averaged {}\nend {} ", fmt::join(stretch.averaged, " "), stretch.end_version());
  return text + sha256_hex(text) + '\n';
}

RecordReader::RecordReader(std::string_view text, std::string name)
    : text_(text), name_(std::move(name)) {
  if (!text.starts_with(kHeader)) {
    throw input_error(fmt::format("{} is not a record that this version can read", name_),
                      "it begins with \"starling-record 1\" when `starling train --record` has "
                      "written it");
  }
  at_ = kHeader.size();
  line_ = 1;
}

void RecordReader::fail(const std::string& what) const {
  throw input_error(fmt::format("{} is damaged in line {}: {}", name_, line_, what),
                    "copy it again from where it was written, or run with --record once more");
}

std::string_view RecordReader::line() {
  ++line_;
  const size_t end = text_.find('\n', at_);
  if (end == std::string_view::npos) fail("it ends in the middle of a stretch");
  const std::string_view line = text_.substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

std::vector<std::string_view> RecordReader::line_of(const char* first) {
  std::vector<std::string_view> words = split(line(), ' ');
  if (words.empty() || words[0] != first) fail(fmt::format("\"{} …\" was to be there", first));
  return words;
}

RecordedStretch RecordReader::next() {
  const size_t begin = at_;
  RecordedStretch stretch = read();
  const std::string_view last = text_.substr(begin, at_ - begin);
  const std::string_view summed = last.substr(0, last.size() - 65);  // without the hash
  if (last.substr(summed.size(), 64) != sha256_hex(summed))
    fail("the stretch is not what its SHA-256 was made of");
  if (const std::string fault = fault_in(stretch); !fault.empty()) fail(fault);
  return stretch;
}

RecordedStretch RecordReader::read() {
  RecordedStretch stretch;
  const auto head = numbers_of<uint64_t>([&] {
    auto words = line_of("stretch");
    words.erase(words.begin());
    return words;
  }());
  if (!head || head->size() != 3 || (*head)[0] > UINT32_MAX || (*head)[2] > UINT32_MAX)
    fail("epoch, updates and epochs were to be there");
  stretch.epoch = static_cast<uint32_t>((*head)[0]);
  stretch.version = (*head)[1];
  stretch.epochs = static_cast<uint32_t>((*head)[2]);
  const auto shards = line_of("shards");
  const auto cut = shards.size() == 2 ? number_of<int>(shards[1]) : std::nullopt;
  if (!cut || *cut < 1 || *cut > kShardsMost) fail("a number of shards was to be there");
  stretch.shards = *cut;
  const auto numbers = line_of("numbers");
  stretch.numbers = fmt::format("{}", fmt::join(numbers.begin() + 1, numbers.end(), " "));
  const auto optimizer = optimizer_of(line_of("optimizer"));
  if (!optimizer) fail("this is no optimizer");
  stretch.optimizer = *optimizer;
  const auto update = line_of("update");
  const auto usual = update.size() == 4 ? number_of<double>(update[1]) : std::nullopt;
  const auto apart = usual ? number_of<size_t>(update[2]) : std::nullopt;
  const auto damping = apart ? number_of<double>(update[3]) : std::nullopt;
  if (!damping || !(*usual > 0 && std::isfinite(*usual)) || *apart < 1 ||
      !(*damping >= 0 && std::isfinite(*damping))) {
    fail("what an update is was to be there");
  }
  stretch.usual = *usual;
  stretch.apart = *apart;
  stretch.damping = *damping;
  const auto names = [&](std::vector<std::string_view> words) {
    words.erase(words.begin());
    const auto found = numbers_of<int>(words);
    if (!found || found->empty()) fail("names of workers were to be there");
    return *found;
  };
  stretch.workers = names(line_of("workers"));
  while (true) {
    const std::string_view text = line();
    if (text.starts_with("averaged")) {
      stretch.averaged = names(split(text, ' '));
      break;
    }
    read_order(text, stretch);
  }
  const auto end = line_of("end");
  if (end.size() != 3 || end[2].size() != 64 ||
      number_of<uint64_t>(end[1]) != stretch.end_version()) {
    fail("the number of updates and a SHA-256 were to be there");
  }
  return stretch;
}

void RecordReader::read_order(std::string_view line, RecordedStretch& stretch) {
  const std::vector<std::string_view> words = split(line, ' ');
  Order order;
  bool good = words.size() > 1;
  if (good && words[0] == "apply") {
    order.kind = Order::Kind::kApply;
    for (size_t i = 1; i < words.size() && good; ++i) {
      const std::optional<Push> push = push_of(words[i]);
      good = push.has_value();
      if (push) order.pushes.push_back(*push);
    }
  } else if (good && (words[0] == "lend" || words[0] == "drop")) {
    const bool lends = words[0] == "lend";
    const auto worker = number_of<int>(words[1]);
    const auto places = numbers_of<uint64_t>({words.begin() + 2, words.end()});
    good = worker && places && places->size() == (lends ? 2 : 0);
    if (good) {
      order.kind = lends ? Order::Kind::kLend : Order::Kind::kDrop;
      order.worker = *worker;
      if (lends) order.samples = {(*places)[0], (*places)[1]};
    }
  } else {
    good = false;
  }
  if (!good) fail("this is no order");
  stretch.log.push_back(std::move(order));
}

}  // namespace starling
