#include "tune/trial.h"

#include <algorithm>
#include <cmath>

namespace hetccl::tune {
namespace {

constexpr double kSure = 1.5;  // errors from the limit, for what is to replace what stands

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double Trial::add(std::span<const double> us) {
  double lost = 0;
  const size_t warm = logs_.empty() ? 2 : 0;
  for (size_t i = 0; i + 1 < us.size(); i += 2) {
    lost += us[i + 1] - us[i];
    if (i < warm) continue;
    standing_.push_back(us[i]);
    logs_.push_back(std::log(std::max(us[i + 1], 1e-3) / std::max(us[i], 1e-3)));
  }
  if (logs_.empty()) return lost;
  standing_us_ = median(standing_);
  const double middle = median(logs_);
  std::vector<double> off;
  for (const double one : logs_) off.push_back(std::abs(one - middle));
  std::sort(off.begin(), off.end());
  ratio_ = std::exp(middle);
  // Of the median of normally distributed pairs, by the distance that three quarters keep: where
  // calls take one of two times, half of them may be alike.
  const double deviation = off[off.size() * 3 / 4] / 1.15;
  error_ = 1.25 * deviation / std::sqrt(static_cast<double>(logs_.size()));
  return lost;
}

Trial::Finding Trial::finding(double gain) const {
  if (logs_.empty()) return Finding::Unclear;
  const bool enough = logs_.size() >= kMostPairs;
  const bool several = logs_.size() > kFirstPhases / 2 - 1;
  const double surely_not = enough ? 1 - gain : 1 - gain / 2;  // few pairs may be unlucky ones
  if (ratio_ - error_ > surely_not && (several || ratio_ > 1.25)) return Finding::NotFaster;
  if (ratio_ + kSure * error_ < 1 - gain && several) return Finding::Faster;
  if (!enough) return Finding::Unclear;
  return ratio_ < 1 - gain ? Finding::Faster : Finding::NotFaster;
}

}  // namespace hetccl::tune
