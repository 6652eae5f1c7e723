#include "mpi/summary.h"

#include <cstdio>
#include <string>
#include <vector>

#include "base/status.h"

namespace hetccl::mpi {
namespace {

constexpr std::array<const char*, kReasons> kTexts = {
    "",
    "a rule",
    "nothing to move",
    "not of this job alone",
    "operator or type",
    "datatype with gaps",
    "not agreed on yet",
    "in place",
    "another thread",
    "hetccl not connected",
    "a rule: leaders of nodes",
};

}  // namespace

Summary::Timer::Timer(Summary& summary, const MpiCall& call)
    : summary_(summary), collective_(call.collective) {
  if (summary_.wanted_) begin_ = std::chrono::steady_clock::now();
}

Summary::Timer::~Timer() {
  if (!summary_.wanted_) return;
  const auto time = std::chrono::steady_clock::now() - begin_;
  Row& row = summary_.rows_[static_cast<size_t>(collective_)][static_cast<size_t>(reason_)];
  row.calls.fetch_add(1, std::memory_order_relaxed);
  row.bytes.fetch_add(static_cast<uint64_t>(bytes_ > 0 ? bytes_ : 0), std::memory_order_relaxed);
  row.nanoseconds.fetch_add(static_cast<uint64_t>(std::chrono::nanoseconds(time).count()),
                            std::memory_order_relaxed);
}

void Summary::print(const Library& library) const {
  // Ranks with different settings must still make the same calls.
  if (library.combine(wanted_ ? 1 : 0, library.comm_world) == 0) return;
  std::vector<double> mine, sums(3 * kCollectives * kReasons);
  for (const auto& rows : rows_) {
    for (const Row& row : rows) {
      mine.push_back(static_cast<double>(row.calls.load()));
      mine.push_back(static_cast<double>(row.bytes.load()));
      mine.push_back(static_cast<double>(row.nanoseconds.load()));
    }
  }
  library.sum_on_first(mine.data(), sums.data(), static_cast<int>(mine.size()), library.comm_world);
  if (library.rank(library.comm_world) != 0) return;
  const double ranks = library.size(library.comm_world);
  std::string text = format("hetccl: MPI collectives, means of %.0f ranks\n", ranks);
  text += format("%-22s %-8s %10s %12s %12s  %s\n", "collective", "by", "calls", "MB", "ms", "why");
  for (size_t i = 0; i < kCollectives; ++i) {
    for (size_t reason = 0; reason < kReasons; ++reason) {
      const double* row = &sums[3 * (i * kReasons + reason)];
      if (row[0] == 0) continue;
      // If no rank knows all lengths, there is no mean.
      const std::string bytes = row[1] == 0 ? "-" : format("%.3f", row[1] / ranks / 1e6);
      text += format("%-22s %-8s %10.1f %12s %12.3f  %s\n",
                     std::string(name_of(static_cast<Collective>(i))).c_str(),
                     reason == 0 ? "hetccl" : "MPI", row[0] / ranks, bytes.c_str(),
                     row[2] / ranks / 1e6, kTexts[reason]);
    }
  }
  std::fputs(text.c_str(), stderr);
}

}  // namespace hetccl::mpi
