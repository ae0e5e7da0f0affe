#include "param/update_rule.h"

namespace starling {

uint64_t samples_of(const std::vector<Push>& pushes) {
  uint64_t samples = 0;
  for (const Push& push : pushes) samples += push.samples.size();
  return samples;
}

UpdateSettings UpdateRule::settings(const std::vector<Push>& pushes, uint64_t version,
                                    uint64_t before) const {
  return {*optimizer, rate(before, samples_of(pushes)), version};
}

}  // namespace starling
