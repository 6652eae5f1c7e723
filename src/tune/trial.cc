#include "tune/trial.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "tune/averages.h"
#include "tune/note.h"

namespace hetccl::tune {
namespace {

// Times are in microseconds. Anything below a thousandth counts as that.
double log_of_ratio(double tried, double beside) {
  return std::log(std::max(tried, 1e-3) / std::max(beside, 1e-3));
}

constexpr double kSure = 1.5;  // standard errors from the limit, to replace the standing setting

// Returns the mean of the middle half, and its standard error. If values are of two kinds, such as
// calls at two places of a step, a median would pick the more frequent kind and look certain.
std::pair<double, double> midmean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size(), cut = n / 4;
  const auto inner = std::span(values).subspan(cut, n - 2 * cut);
  const double mean =
      std::accumulate(inner.begin(), inner.end(), 0.0) / static_cast<double>(inner.size());
  double squares = 0, whole = 0;  // cut values count as the nearest that is kept
  for (size_t i = 0; i < n; ++i) whole += std::clamp(values[i], inner.front(), inner.back());
  for (size_t i = 0; i < n; ++i) {
    const double off =
        std::clamp(values[i], inner.front(), inner.back()) - whole / static_cast<double>(n);
    squares += off * off;
  }
  const double deviation = std::sqrt(squares / static_cast<double>(std::max<size_t>(n - 1, 1)));
  const double kept = static_cast<double>(inner.size()) / static_cast<double>(n);
  return {mean, deviation / (kept * std::sqrt(static_cast<double>(n)))};
}

}  // namespace

Compared compare(std::span<const double> tried, std::span<const double> beside) {
  std::vector<double> logs;
  for (size_t i = 0; i < tried.size(); ++i) logs.push_back(log_of_ratio(tried[i], beside[i]));
  const auto [middle, error] = midmean(std::move(logs));
  return {std::exp(middle), error};
}

double Trial::add(std::span<const double> us) {
  double lost = 0;
  const size_t warm = logs_.empty() ? 2 : 0;
  for (size_t i = 0; i + 1 < us.size(); i += 2) {
    const bool first = tries_candidate(i);
    const double candidate = us[first ? i : i + 1], standing = us[first ? i + 1 : i];
    lost += candidate - standing;
    if (i < warm) continue;
    standing_.push_back(standing);
    logs_.push_back(log_of_ratio(candidate, standing));
  }
  if (logs_.empty()) return lost;
  standing_us_ = median(standing_);
  const auto [middle, error] = midmean(logs_);
  ratio_ = std::exp(middle);
  error_ = error;
  return lost;
}

Trial::Finding Trial::finding(double gain) const {
  if (logs_.empty()) return Finding::Unclear;
  const bool enough = logs_.size() >= kMostPairs;
  const bool several = logs_.size() > kFirstPhases / 2 - 1;
  const double surely_not = enough ? 1 - gain : 1 - gain / 2;  // few pairs may be bad luck
  if (ratio_ - error_ > surely_not && (several || ratio_ > 1.25)) return Finding::NotFaster;
  if (ratio_ + kSure * error_ < 1 - gain && several) return Finding::Faster;
  if (!enough) return Finding::Unclear;
  return ratio_ < 1 - gain ? Finding::Faster : Finding::NotFaster;
}

}  // namespace hetccl::tune
