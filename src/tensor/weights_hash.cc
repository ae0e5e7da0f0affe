#include "tensor/weights_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <bit>
#include <memory>

#include "starling/error.h"

namespace starling {

static_assert(std::endian::native == std::endian::little,
              "weights are hashed as they lie in memory");

std::string weights_sha256(const ParameterSpace& space, std::span<const float> weights) {
  if (weights.size() != space.total_floats()) {
    throw run_error(fmt::format("{} floats were given to be hashed as a space of {}",
                                weights.size(), space.total_floats()),
                    "hash the weights of the model that the space was made for");
  }
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  bool good = context && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1;
  for (size_t index : space.name_order()) {
    const Slice& slice = space.slices()[index];
    good = good && EVP_DigestUpdate(context.get(), weights.data() + slice.offset,
                                    slice.size * sizeof(float)) == 1;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  good = good && EVP_DigestFinal_ex(context.get(), digest.data(), &length) == 1;
  if (!good) {
    throw run_error("OpenSSL can't compute SHA-256", "check the installation of OpenSSL (libssl3)");
  }
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + length, ""));
}

}  // namespace starling
