// NumPy's NPY format, versions 1 to 3: a magic string, the length of a header, the header (a Python
// dictionary as text: type, order, shape), then the numbers. Files are used where they lie.
#pragma once

#include "data/array.h"

namespace starling::data {

// Checks the bytes of an NPY file. Throws Error that names the file, what was found and what to
// do.
Array parse_npy(FileBytes file);

}  // namespace starling::data
