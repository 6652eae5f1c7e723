// Operators that a user makes: pre-multiplied sums, each for one communicator.
#pragma once

#include <atomic>
#include <map>
#include <mutex>

#include "base/status.h"
#include "base/types.h"

namespace hetccl::comm {

/// The time at which a pre-multiplied sum's scalar is read.
enum class ScalarRead : uint8_t {
  AtCall,  ///< at each collective, from memory that outlives the operator
  Now,
};

/// The operators of one communicator, by number. Thread-safe.
class RedOps {
 public:
  /// All communicators of a process share `numbers`, so that one communicator never mistakes
  /// another's operator for its own.
  explicit RedOps(std::atomic<uint32_t>& numbers) : numbers_(numbers) {}

  /// Makes a pre-multiplied sum for elements of `type`. Returns its number, which is no RedOp.
  Result<int> create(DataType type, const void* scalar, ScalarRead read);
  /// Returns InvalidArgument if `create` did not return `number`, or if it is already destroyed.
  Status destroy(int number);
  /// Returns operator `number` for elements of `type`, built in or made by `create`. Returns
  /// InvalidArgument if it is neither, or of another type.
  [[nodiscard]] Result<Reducer> find(int number, DataType type) const;

 private:
  struct PreMulSum {
    DataType type{};
    Factor factor;
    const void* scalar = nullptr;  // read at each call; null: use `factor`
  };

  std::atomic<uint32_t>& numbers_;
  mutable std::mutex mutex_;
  std::map<int, PreMulSum> made_;
};

}  // namespace hetccl::comm
