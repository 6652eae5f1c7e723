#pragma once

#include <array>
#include <memory>
#include <vector>

#include "exec/arena.h"

namespace hetccl::exec {

/// Buffer sets that operations use in turns, so that memory does not grow with the number of calls
/// in flight. Each set serves one operation at a time. With several in flight there are two sets
/// (double buffering): one is filled while the other's last messages are sent.
class Rotation {
 public:
  struct Turn {
    const Buffers* buffers = nullptr;  ///< null: no turn
    device::Flag* left = nullptr;      ///< counts the operations that have left these buffers
    uint32_t before = 0;               ///< the count that must be reached before this operation may
                                       ///< use them
  };

  static Result<std::unique_ptr<Rotation>> create(device::Device& device);
  ~Rotation();
  Rotation(const Rotation&) = delete;
  Rotation& operator=(const Rotation&) = delete;

  /// Takes a turn for operation `number`, when `retired` operations are retired. The device may use
  /// the buffers once `left` has reached `before`. Not thread-safe.
  Result<Turn> take(uint64_t number, uint64_t retired, size_t scratch_bytes, size_t staging_bytes);
  /// Returns the same turn with more memory, before the operation has begun.
  Result<Turn> enlarge(const Turn& turn, uint64_t retired, size_t scratch_bytes,
                       size_t staging_bytes);
  /// Called when an operation retires, in order. One thread at a time calls this and
  /// `release_waits`.
  static void leave(const Turn& turn) {
    turn.left->word.store(turn.before + 1, std::memory_order_release);
  }
  /// Ends all device waits for good, because no operation leaves any more. Further calls do
  /// nothing.
  void release_waits();

 private:
  struct Set {
    std::unique_ptr<Buffers> buffers;
    device::Flag* left = nullptr;
    uint32_t turns = 0;
    uint64_t last = 0;  // number of the last operation that took it, plus one
  };
  // Buffers that were too small, kept until their last operation retires.
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
