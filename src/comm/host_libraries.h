// The libraries that can serve clusters of the host: hetccl's own, and those of HETCCL_ADAPTORS.
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

/// Which of them serves the host's ranks: the one with the highest score, and of equals the first;
/// null: hetccl's own, which has HETCCL_OWN_SCORE. Sets `why`, of each, why it does not. An error
/// where one is refused, or does not answer in time.
Result<std::shared_ptr<const adaptor::Adaptor>> choose_library(
    const std::vector<adaptor::Found>& found, std::vector<std::string>& why,
    const WaitLimit& limit);

/// Those of one Runtime, which it outlives. Thread-safe.
class HostLibraries {
 public:
  /// Of `found`, those without a library of hosts are no business of this.
  HostLibraries(const HostRow& row, const Log& log, const std::vector<adaptor::Found>& found);

  /// The one that serves this process: chosen by the first call, since an adaptor may have to wait
  /// there for its other ranks, within `limit`. `crew` helps hetccl's own. An error where an
  /// adaptor is refused.
  Result<ccl::Library*> library(const std::shared_ptr<Crew>& crew, const WaitLimit& limit);
  /// Each of them, and why it does not serve, as `hetccl info` shows it.
  [[nodiscard]] std::vector<Json> describe(const std::shared_ptr<Crew>& crew);

 private:
  const HostRow& row_;
  const Log& log_;
  std::vector<adaptor::Found> found_;
  std::mutex mutex_;  // guards what follows
  std::unique_ptr<ccl::Library> library_;
  Status refused_;
  std::vector<std::string> why_not_;  // of each that was found
};

}  // namespace hetccl::comm
