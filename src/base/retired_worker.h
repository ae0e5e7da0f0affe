// RetiredWorker: thrown in a worker that was asked to leave and is no longer expected by the
// others. Not an error, and so no std::exception: the worker just ends.
#pragma once

namespace starling {

struct RetiredWorker {};

}  // namespace starling
