// The libraries that can serve host clusters: hetccl's own, and those of HETCCL_ADAPTORS.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "ccl/adaptor/adaptor_library.h"
#include "comm/adaptors.h"
#include "host/crew.h"

namespace hetccl::comm {

/// Returns the adaptor with the highest score for this host's ranks, the first one if scores are
/// equal; null: hetccl's own, whose score is HETCCL_OWN_SCORE. Sets in `why` the reason for each
/// adaptor that is not used. Returns an error if one is refused or does not answer in time.
Result<std::shared_ptr<const adaptor::Adaptor>> choose_library(
    const std::vector<adaptor::Found>& found, std::vector<std::string>& why,
    const WaitLimit& limit);

/// The host libraries of one Runtime, which must outlive this. Thread-safe.
class HostLibraries {
 public:
  /// Ignores members of `found` that have no library for hosts.
  HostLibraries(const HostRow& row, const Log& log, const std::vector<adaptor::Found>& found);

  /// Returns the library that serves this process. The first call chooses it, and may wait there,
  /// within `limit`, for an adaptor's other ranks. `crew` helps hetccl's own library. Returns an
  /// error if an adaptor is refused.
  Result<ccl::Library*> library(const std::shared_ptr<Crew>& crew, const WaitLimit& limit);
  /// Describes each library and why it is not used, as `hetccl info` shows it.
  [[nodiscard]] std::vector<Json> describe(const std::shared_ptr<Crew>& crew);

 private:
  const HostRow& row_;
  const Log& log_;
  std::vector<adaptor::Found> found_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ccl::Library> library_;
  Status refused_;
  std::vector<std::string> why_not_;  // by found adaptor
};

}  // namespace hetccl::comm
