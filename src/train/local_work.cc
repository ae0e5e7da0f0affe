#include "train/local_work.h"

#include <algorithm>
#include <cmath>

namespace starling {

void DisagreementSum::add(std::span<const float> a, std::span<const float> b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double there = b[i], difference = static_cast<double>(a[i]) - there;
    apart += difference * difference;
    length += there * there;
  }
  if (!(length > 0) || !std::isfinite(apart)) return;
  sum_.sum += std::sqrt(apart / length);
  ++sum_.count;
}

LeaseWork::Result LocalChange::run(const Work& work, const RowReader& reader) {
  // Several tasks of a round begin with the same weights, in which none of their changes is.
  if (work.version != version_) agreed(work.seat.weights);
  version_ = work.version;
  std::copy(work.seat.weights.begin(), work.seat.weights.end(), base_.begin());
  Result result = steps_->run(work, reader);
  std::copy(work.seat.weights.begin(), work.seat.weights.end(), own_.begin());
  is_agreed_ = result.outdone;
  const std::span<float> change = work.seat.gradient;
  for (size_t i = 0; i < change.size(); ++i) change[i] = base_[i] - own_[i];
  result.change = change;
  return result;
}

void LocalChange::agreed(std::span<const float> weights) {
  if (!is_agreed_) sum_.add(own_.span(), weights);
  is_agreed_ = true;
}

LeaseWork::Result ElasticSteps::run(const Work& work, const RowReader& reader) {
  const std::span<float> weights = work.seat.weights;  // the centre
  own_.before = own_.now;
  if (own_.now.empty()) {
    own_.now.assign(weights.begin(), weights.end());
  } else {
    sum_.add(own_.now, weights);
  }
  pull_.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    pull_[i] = strength_ * (own_.now[i] - weights[i]);
    weights[i] = own_.now[i] - pull_[i];
  }
  Result result = steps_->run(work, reader);
  own_.now.assign(weights.begin(), weights.end());
  const std::span<float> change = work.seat.gradient;
  for (size_t i = 0; i < change.size(); ++i) change[i] = -pull_[i];
  result.change = change;
  if (!result.finite) own_.now.clear();  // it begins at the centre again
  return result;
}

void ElasticSteps::take_back(size_t leases) {
  if (leases == 0) return;
  steps_->take_back();
  own_.now = own_.before;
}

LeaseWork::Result GossipSteps::run(const Work& work, const RowReader& reader) {
  own_.before.assign(weights_.begin(), weights_.end());
  const Result result = steps_->run(work, reader);
  if (!result.finite) std::copy(own_.before.begin(), own_.before.end(), weights_.begin());
  return result;
}

void GossipSteps::take_back(size_t leases) {
  if (leases == 0) return;
  steps_->take_back();
  std::copy(own_.before.begin(), own_.before.end(), weights_.begin());
}

void GossipSteps::agreed(std::span<const float> weights) {
  if (!own_.now.empty()) sum_.add(own_.now, weights);
}

}  // namespace starling
