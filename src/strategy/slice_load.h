// How large slices should be, so that all who keep them take equally long for an update: from how
// long they took. Pure.
#pragma once

#include <span>
#include <vector>

#include "strategy/ownership.h"

namespace starling {

// What a member has done as a server.
struct ServedLoad {
  double seconds = 0;
  double floats = 0;  // that it has updated
};

// `loads` are by slice, and so are the shares of the space that are returned, for an Ownership of
// the same members. None: the slices are to stay as they are, because too little is known, or the
// longest update would not become shorter by a fifth.
std::vector<double> shares_by_load(const Ownership& owners, std::span<const ServedLoad> loads);

}  // namespace starling
