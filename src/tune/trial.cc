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
  ratio_ = std::exp(middle);
  // Of a median whose pairs are normally distributed.
  error_ = 1.4826 * median(off) * 1.25 / std::sqrt(static_cast<double>(logs_.size()));
  return lost;
}

Trial::Finding Trial::finding(double gain) const {
  if (logs_.empty()) return Finding::Unclear;
  const bool enough = logs_.size() >= kMostPairs;
  if (ratio_ - error_ > 1 - gain && (enough || ratio_ > 1.25 || logs_.size() > 2))
    return Finding::NotFaster;
  if (ratio_ + kSure * error_ < 1 - gain && logs_.size() > 2) return Finding::Faster;
  if (!enough) return Finding::Unclear;
  return ratio_ < 1 - gain ? Finding::Faster : Finding::NotFaster;
}

}  // namespace hetccl::tune
