// The pixels of a PNG as browsers write it: 8 bits a channel, not interlaced.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

namespace starling {

struct Picture {
  size_t width = 0, height = 0;
  std::vector<uint32_t> pixels;  // 0xRRGGBB, row by row
};

// Throws std::runtime_error for anything else.
inline Picture read_png(const std::string& file) {
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file.at(at + i));
    return value;
  };
  if (!file.starts_with("\x89PNG")) throw std::runtime_error("not a PNG");
  Picture picture{number(16), number(20), {}};
  const int kind = file.at(25);
  if (file.at(24) != 8 || (kind != 2 && kind != 6) || file.at(28) != 0)
    throw std::runtime_error("another kind of PNG");
  std::string packed;
  for (size_t at = 8; at + 8 <= file.size(); at += 12 + number(at)) {
    if (file.compare(at + 4, 4, "IDAT") == 0) packed.append(file, at + 8, number(at));
  }
  const size_t step = kind == 6 ? 4 : 3, line = picture.width * step;
  std::vector<uint8_t> bytes((line + 1) * picture.height);
  uLongf size = bytes.size();
  if (uncompress(bytes.data(), &size, reinterpret_cast<const Bytef*>(packed.data()),
                 packed.size()) != Z_OK ||
      size != bytes.size())
    throw std::runtime_error("a damaged PNG");
  std::vector<uint8_t> above(line), row(line);
  for (size_t y = 0; y < picture.height; ++y) {
    const uint8_t* const raw = bytes.data() + y * (line + 1);
    for (size_t x = 0; x < line; ++x) {
      const int a = x < step ? 0 : row[x - step], b = above[x], c = x < step ? 0 : above[x - step];
      const int pa = std::abs(b - c), pb = std::abs(a - c), pc = std::abs(a + b - 2 * c);
      const int paeth = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
      const int guesses[] = {0, a, b, (a + b) / 2, paeth};
      row[x] = static_cast<uint8_t>(raw[1 + x] + guesses[raw[0] % 5]);
    }
    for (size_t x = 0; x < line; x += step)
      picture.pixels.push_back(static_cast<uint32_t>(row[x] << 16 | row[x + 1] << 8 | row[x + 2]));
    above = row;
  }
  return picture;
}

}  // namespace starling
