// Arguments that a rank passes for a random case (fake/cases.h).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "fake/cases.h"

namespace hetccl::comm {

/// The arguments, and the lists that they point to. `recv` is not passed where there is no result.
class CaseArguments {
 public:
  CaseArguments(const fake::Case& test, int rank, const void* send, void* recv)
      : sent_(send_counts(test, rank)),
        received_(recv_counts(test, rank)),
        from_(fake::packed(sent_)),
        to_(fake::packed(received_)),
        arguments_{test.signature, send, receives(test, rank) ? recv : nullptr,
                   factor_of(test, rank)} {
    if (!test.signature.uneven) return;
    arguments_.input = {sent_, from_};
    arguments_.output = {received_, to_};
  }
  CaseArguments(const CaseArguments&) = delete;
  CaseArguments& operator=(const CaseArguments&) = delete;
  [[nodiscard]] const CollectiveArguments& get() const { return arguments_; }

 private:
  const std::vector<uint64_t> sent_, received_, from_, to_;
  CollectiveArguments arguments_;
};

}  // namespace hetccl::comm
