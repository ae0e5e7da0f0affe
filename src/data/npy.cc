#include "data/npy.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "starling/error.h"

namespace starling::data {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
// NumPy's own limit for headers that it trusts is 10,000 characters.
constexpr uint64_t kNpyHeaderMost = 64 << 10;

struct Header {
  std::optional<std::string> type;
  std::optional<bool> fortran_order;
  std::optional<std::vector<uint64_t>> shape;
};

Error bad_file(const std::string& name, const std::string& what) {
  return input_error(fmt::format("{}: is not a usable NPY file: {}", name, what),
                     "write it with numpy.save(path, array)");
}

// Reads the dictionary. Only what NumPy writes is understood: three known keys, a string, a truth
// value and a tuple of numbers.
class HeaderParser {
 public:
  HeaderParser(const std::string& name, std::string_view text) : name_(name), text_(text) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      parse_entry(header);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ < text_.size()) throw unexpected("the end");
    if (!header.type || !header.fortran_order || !header.shape) {
      throw bad_file(name_, "its header lacks 'descr', 'fortran_order' or 'shape'");
    }
    return header;
  }

 private:
  void parse_entry(Header& header) {
    const std::string key = parse_string();
    expect(':');
    if (key == "descr" && !header.type) {
      header.type = parse_string();
    } else if (key == "fortran_order" && !header.fortran_order) {
      header.fortran_order = parse_bool();
    } else if (key == "shape" && !header.shape) {
      header.shape = parse_tuple();
    } else {
      throw bad_file(
          name_, fmt::format("its header has the unknown or repeated key '{}'", printable(key)));
    }
  }

  std::string parse_string() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') throw unexpected("a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) throw unexpected("a closed string");
    const std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool parse_bool() {
    skip_space();
    for (const auto& [word, value] :
         {std::pair{std::string_view("True"), true}, std::pair{std::string_view("False"), false}}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    }
    throw unexpected("True or False");
  }

  std::vector<uint64_t> parse_tuple() {
    std::vector<uint64_t> values;
    expect('(');
    while (!accept(')')) {
      values.push_back(parse_number());
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  uint64_t parse_number() {
    skip_space();
    const size_t begin = at_;
    uint64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const uint64_t digit = static_cast<uint64_t>(text_[at_] - '0');
      if (value > (std::numeric_limits<uint64_t>::max() - digit) / 10) {
        throw unexpected("a number that fits 64 bits");
      }
      value = value * 10 + digit;
    }
    if (at_ == begin) throw unexpected("a number that is not negative");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // as Python 2 wrote them
    return value;
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) throw unexpected(fmt::format("'{}'", c));
  }

  Error unexpected(const std::string& wanted) const {
    return bad_file(name_, fmt::format("{} was expected at character {} of its header: {}", wanted,
                                       at_, printable(text_.substr(0, 120))));
  }

  static std::string printable(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
      if (c < ' ' || c > '~') c = '.';
    }
    return result;
  }

  const std::string& name_;
  std::string_view text_;
  size_t at_ = 0;
};

// The number type of a string such as "<f4".
std::pair<ElementType, bool> element_type(const std::string& name, const std::string& text) {
  constexpr std::pair<std::string_view, ElementType> kTypes[] = {
      {"f4", ElementType::kF32}, {"f8", ElementType::kF64}, {"u1", ElementType::kU8},
      {"b1", ElementType::kU8},  {"i1", ElementType::kI8},  {"i2", ElementType::kI16},
      {"i4", ElementType::kI32}, {"i8", ElementType::kI64}};
  const char order = text.empty() ? '\0' : text[0];
  if (order == '<' || order == '>' || order == '|') {
    for (const auto& [code, type] : kTypes) {
      const bool sized = element_bytes(type) == 1 || order != '|';
      if (std::string_view(text).substr(1) == code && sized) return {type, order == '>'};
    }
  }
  std::string shown = text.substr(0, 32);
  for (char& c : shown) {
    if (c < ' ' || c > '~') c = '.';
  }
  throw input_error(fmt::format("{}: has numbers of the type '{}'", name, shown),
                    "supported are f4, f8, u1, i1, i2, i4, i8 and b1: convert it with "
                    "array.astype('float32')");
}

struct HeaderPlace {
  uint64_t begin, bytes;
};

HeaderPlace find_header(const FileBytes& file) {
  const auto byte = [&](size_t i) { return std::to_integer<uint64_t>(file.bytes[i]); };
  if (file.bytes.size() < 10) {
    throw bad_file(file.name, fmt::format("it has only {} bytes", file.bytes.size()));
  }
  for (size_t i = 0; i < kNpyMagic.size(); ++i) {
    if (byte(i) != static_cast<unsigned char>(kNpyMagic[i])) {
      throw bad_file(file.name, "it does not begin with \\x93NUMPY");
    }
  }
  const uint64_t version = byte(6);
  if (version < 1 || version > 3) {
    throw bad_file(file.name, fmt::format("its version is {}, 1 to 3 are known", version));
  }
  HeaderPlace place{10, byte(8) | byte(9) << 8};
  if (version > 1) {
    if (file.bytes.size() < 12) throw bad_file(file.name, "it ends in its header");
    place = {12, byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24};
  }
  if (place.bytes > kNpyHeaderMost || place.bytes > file.bytes.size() - place.begin) {
    throw bad_file(file.name, fmt::format("it declares a header of {} bytes and has {} in all",
                                          place.bytes, file.bytes.size()));
  }
  return place;
}

}  // namespace

Array parse_npy(FileBytes file) {
  const HeaderPlace place = find_header(file);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()) + place.begin,
                              place.bytes);
  const Header header = HeaderParser(file.name, text).parse();
  const auto [type, big_endian] = element_type(file.name, *header.type);
  if (*header.fortran_order && header.shape->size() > 1) {
    throw input_error(fmt::format("{}: is in Fortran order (columns first)", file.name),
                      "write it with numpy.save(path, numpy.ascontiguousarray(array))");
  }
  Array array;
  array.layout = make_layout(file.name, type, big_endian, *header.shape, place.begin + place.bytes);
  check_length(file.name, array.layout, file.bytes.size());
  array.file = std::move(file);
  return array;
}

Dataset npy(const std::filesystem::path& features, const std::filesystem::path& labels,
            const NpyOptions& options) {
  return join(parse_npy(map_bytes(features)), parse_npy(map_bytes(labels)), options.scale);
}

}  // namespace starling::data
