// The operators that a user makes: pre-multiplied sums, each of one communicator.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "base/status.h"
#include "base/types.h"

namespace hetccl::comm {

/// When a pre-multiplied sum's scalar is read.
enum class ScalarRead : uint8_t {
  AtCall,  ///< at each collective, from memory that outlives the operator
  Now,
};

/// The operators of one communicator, by number. Thread-safe.
class RedOps {
 public:
  /// `numbers` is shared by all communicators of a process, so that an operator of another one is
  /// not taken for one of these.
  explicit RedOps(std::atomic<uint32_t>& numbers) : numbers_(numbers) {}

  /// A pre-multiplied sum for elements of `type`: its number, which is none of RedOp's.
  Result<int> create(DataType type, const void* scalar, ScalarRead read);
  /// InvalidArgument for a number that `create` did not return, or that is destroyed already.
  Status destroy(int number);
  /// The operator `number` for elements of `type`, built in or made by `create`; InvalidArgument
  /// for one that is neither, or of another type.
  [[nodiscard]] Result<Reducer> find(int number, DataType type) const;

 private:
  struct PreMulSum {
    DataType type{};
    Factor factor;
    const void* scalar = nullptr;  // read at each call; null: `factor` it is
  };

  std::atomic<uint32_t>& numbers_;
  mutable std::mutex mutex_;
  std::map<int, PreMulSum> made_;
};

}  // namespace hetccl::comm
