#pragma once

#include <array>
#include <memory>
#include <vector>

#include "exec/arena.h"

namespace hetccl::exec {

/// Buffers that an executor's operations use by turns, so that memory does not grow with the number
/// of calls in flight. One operation at a time uses one set; with several in flight there are two:
/// one is filled while the other's last messages leave.
class Rotation {
 public:
  struct Turn {
    const Buffers* buffers = nullptr;  ///< null: no turn
    device::Flag* left = nullptr;      ///< counts operations that have left these buffers
    uint32_t before = 0;               ///< so many had them before
  };

  static Result<std::unique_ptr<Rotation>> create(device::Device& device);
  ~Rotation();
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  /// For operation `number`, while `retired` are. The device may use the buffers once `left` has
  /// reached `before`. Not thread-safe.
  Result<Turn> take(uint64_t number, uint64_t retired, size_t scratch_bytes, size_t staging_bytes);
  /// The same turn, with as much memory, before the operation has begun.
  Result<Turn> enlarge(const Turn& turn, uint64_t retired, size_t scratch_bytes,
                       size_t staging_bytes);
  /// An operation is retired, in order. With `release_waits` by one thread at a time.
  static void leave(const Turn& turn) {
    turn.left->word.store(turn.before + 1, std::memory_order_release);
  }
  /// Ends all waits of the device, for good: nobody leaves any more. Further calls do nothing.
  void release_waits();

 private:
  struct Set {
    std::unique_ptr<Buffers> buffers;
    device::Flag* left = nullptr;
    uint32_t turns = 0;
    uint64_t last = 0;  // number of the last operation that took it, and one
  };
  // Buffers that were too small, until their last operation is retired.
  struct Outgrown {
    std::unique_ptr<Buffers> buffers;
    uint64_t last = 0;
  };

  explicit Rotation(device::Device& device) : device_(device) {}
  Status make_room(Set& set, uint64_t retired, size_t scratch_bytes, size_t staging_bytes);

  device::Device& device_;
  std::byte* flags_ = nullptr;
  std::array<Set, 2> sets_;
  std::vector<Outgrown> outgrown_;
  bool released_ = false;
};

}  // namespace hetccl::exec
