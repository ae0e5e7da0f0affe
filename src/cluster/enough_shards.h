// Whether a batch has a shard for each worker.
#pragma once

namespace starling {

// Throws Error when there are fewer shards than workers.
void require_shards(int workers, int shards);

}  // namespace starling
