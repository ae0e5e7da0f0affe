// The IDX format of MNIST: two zero bytes, a type, the number of axes, each extent as a big-endian
// u32, then the numbers, big-endian and row-major. Raw files are used where they lie; gzipped ones
// are unpacked into memory.
#pragma once

#include "data/array.h"

namespace starling::data {

// Checks the bytes of an IDX file, raw or gzipped. Throws Error that names the file, what was
// found and what to do.
Array parse_idx(FileBytes file);

// The data set of parsed files. Throws Error when their numbers of samples differ.
Dataset join_idx(Array features, Array labels, const IdxOptions& options);

}  // namespace starling::data
