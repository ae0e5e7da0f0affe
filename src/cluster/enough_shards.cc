#include "cluster/enough_shards.h"

#include <fmt/format.h>

#include "starling/error.h"

namespace starling {

void require_shards(int workers, int shards) {
  if (workers <= shards) return;
  throw input_error(
      fmt::format("{} workers for {} shards: some would have none", workers, shards),
      fmt::format("use --workers {} or less, or set shards to {} or more (which changes the "
                  "numbers)",
                  shards, workers));
}

}  // namespace starling
