// A collective or a message in flight: the caller's arguments, the Code that runs it, its flags,
// and the place of its memory. Operations are recycled, so that the steady state allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "device/device.h"
#include "exec/arena.h"
#include "exec/end_marks.h"
#include "exec/host_arithmetic.h"
#include "exec/message.h"
#include "exec/program.h"
#include "exec/registered_memory.h"
#include "exec/rotation.h"
#include "exec/ticket.h"

namespace hetccl::exec {

using lower::Layout;

struct Order;

/// The launch parameters of one operation.
struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  Signature signature;
  Factor factor;             ///< this rank's factor, for PreMulSum
  uint32_t salt = 0;         ///< for stochastic encodings
  void* residual = nullptr;  ///< as long as the input, or null
  uint64_t sequence = 0;
  uint32_t tag = 0;  ///< of a message; equal at both ends
  TimePoint deadline = TimePoint::max();
  TimePoint launched{};
  Layout input{}, output{};  ///< of an uneven call; valid only during `launch`
  bool begun = false;        ///< by `Executor::all_reduce_at_once`
  bool awaited = false;      ///< its caller waits, so its end must be known at once
  bool timed = false;        ///< report its time to ExecutorOptions::on_timed
  uint64_t round = 0;        ///< the tuning round of its setting; equal on all ranks
  plan::Resources resources{};
};

/// A piece of memory.
struct Span {
  std::byte* data = nullptr;
  uint64_t count = 0;  ///< elements
  size_t bytes = 0;
};

struct Operation {
  explicit Operation(device::Device& device)
      : flag_memory(device, Arena::Kind::Pinned),
        host_reductions(device),
        identities(device),
        completion(Completion::take()),
        own_(device) {}
  ~Operation() { Completion::give_back(completion); }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Prepares it for `call`: allocates and resets flags, and allocates for the host's arithmetic
  /// and for identities.
  Status prepare(const Program::Lowered& lowered, const Call& call);
  /// Returns the scratch that a prepared operation needs, in bytes.
  [[nodiscard]] size_t scratch_bytes() const;
  [[nodiscard]] size_t staging_bytes() const;
  /// Returns whether the memory of `operand` is registered with transports.
  [[nodiscard]] bool is_registered(const lower::Operand& operand) const;
  /// Registers its work buffers with transports, if they take them.
  void hold_buffers(RegisteredMemory& memory);
  /// Makes it work in its own buffers instead of those of a turn. Call after `prepare`.
  Status use_own_buffers();
  void use(const Rotation::Turn& turn);

  /// Returns the place of `operand` in slice `k`.
  [[nodiscard]] Span resolve(const lower::Operand& operand, uint32_t k) const;
  /// Returns the index of a region's first element in slice `k`, among the call's elements, block
  /// by block.
  [[nodiscard]] uint64_t first_element(const plan::Region& region, uint32_t k) const;
  /// Returns the whole block of `operand`. For input and output only.
  [[nodiscard]] Span resolve_whole(const lower::Operand& operand) const;
  /// Returns whether that message of the Code is sent in slice `k`: not if slices are fixed and it
  /// has ended before.
  [[nodiscard]] bool travels(uint16_t number, uint32_t k) const {
    return !code->fixed_slices || k == 0 || k < slices_of(number);
  }
  /// Returns the number of slices in which that message is sent.
  [[nodiscard]] uint32_t slices_of(uint16_t number) const;
  /// Returns the number of messages of all slices.
  [[nodiscard]] size_t n_messages() const;
  /// Returns the length of a region in slice `k`, in bytes.
  [[nodiscard]] size_t bytes_of(const plan::Region& region, uint32_t k) const;
  /// Returns the place of that message of slice `k` in the ring. Set when the place is taken.
  [[nodiscard]] std::byte*& ring_place(uint16_t number, uint32_t k) {
    return ring_places_[number * size_t{code->n_slots} + k % code->n_slots];
  }
  [[nodiscard]] device::Flag& flag(lower::SyncId sync) { return flags()[sync]; }
  /// Returns the count of its sync that `wait` in slice `k` needs; 0: no wait.
  [[nodiscard]] uint32_t awaited(const lower::Instruction& wait, uint32_t k) const {
    if (code->syncs[wait.sync].once) return 1;
    return k < wait.back ? 0 : k - wait.back + 1;
  }
  /// Returns the count of a sync once it is signalled in slice `k`.
  [[nodiscard]] uint32_t counted(lower::SyncId sync, uint32_t k) const {
    return code->syncs[sync].once ? 1 : k + 1;
  }
  /// Returns the count of that message's sync once it is complete in slice `k`.
  [[nodiscard]] uint32_t completed(uint16_t number, uint32_t k) const {
    return travels(number, k + 1) ? k + 1 : n_slices;
  }
  [[nodiscard]] bool is_over(const lower::Instruction& wait, uint32_t k) {
    return flag(wait.sync).reached(awaited(wait, k));
  }
  /// Signalled when the user's stream has reached the operation.
  [[nodiscard]] device::Flag& started() { return flag(lower::kStarted); }
  /// Returns whether a mark of its start must be enqueued: for timed calls that are one library
  /// call, whose Code signals no start to save time.
  [[nodiscard]] bool marks_start() const {
    return code->one_library_call && call.timed && !call.awaited;
  }
  [[nodiscard]] bool tells_start() const { return !code->one_library_call || marks_start(); }
  /// Signalled when the device is done and has joined the user's stream, unless a mark tells it.
  [[nodiscard]] device::Flag& finished() { return flag(lower::kFinished); }
  [[nodiscard]] bool is_finished() {
    return finished().reached(1) || (marks != nullptr && marks->ended(mark));
  }
  /// Returns whether it has finished and its messages are complete.
  [[nodiscard]] bool ended() { return is_finished() && outstanding == 0; }
  /// Ends all waits of device work for this operation.
  void release_waits();
  /// Enters `its_order`, as part of the call that `its_lead` leads.
  void enter(Order& its_order, Operation& its_lead, bool library) {
    order = &its_order;
    lead = &its_lead;
    by_library = library;
  }
  [[nodiscard]] bool is_message() const {
    return call.signature.collective == Collective::PointToPoint;
  }
  /// Returns its number in the recorder.
  [[nodiscard]] uint64_t recorded_as() const { return is_message() ? posting : call.sequence; }
  /// Returns whether it is a message that cannot end without its other end.
  [[nodiscard]] bool awaits_peer() {
    return is_message() && (outstanding > 0 || (by_library && !is_finished()));
  }

  const lower::Code* code = nullptr;
  Call call;
  uint64_t slice_elements = 0;
  uint32_t n_slices = 1;
  Arena flag_memory;
  HostReductions host_reductions;
  IdentityArray identities;
  Rotation::Turn turn;        ///< of its work buffers, or none
  size_t outstanding = 0;     ///< incomplete messages; the engine's once launched
  EndMarks* marks = nullptr;  ///< tell its end; or null
  uint32_t mark = 0;          ///< in `marks`
  TimePoint started_at{};     ///< for timed calls: when the user's stream reached it
  /// True if transports have registered the user's memory, the scratch and the staging memory.
  bool registered = false, scratch_known = false, staging_known = false;
  std::vector<RegisteredMemory::Hold> holds;  ///< keep the call's memory registered
  std::atomic<bool> given_up{false};          ///< enqueueing failed half-way: send nothing more

  Order* order = nullptr;     ///< the order it belongs to
  Operation* lead = nullptr;  ///< the first operation of its call
  Completion& completion;     ///< of the call, if this operation leads it

  // Set for messages.
  Message message;
  bool by_library = false;  ///< carried by the cluster's library, not by a channel
  uint64_t posting = 0;     ///< its index among all messages of this rank

 private:
  Status prepare_arithmetic();
  /// Elements [offset, offset + count) of a buffer. In scratch, `base` is the element where the
  /// block begins.
  struct Extent {
    uint64_t offset = 0, count = 0;
    uint64_t base = 0;
  };
  struct Extents {
    std::vector<Extent> blocks;  ///< empty: all are as long as the call's count
    [[nodiscard]] Extent at(uint32_t block, uint64_t count) const {
      return blocks.empty() ? Extent{block * count, count} : blocks[block];
    }
    void set(const lower::Layout& layout);
  };
  /// Returns the block that contains `region`; for scratch, the corresponding block of the input.
  [[nodiscard]] Extent block_of(const plan::Region& region) const;
  /// Returns the place of a region of slice `k` in its buffer, in elements.
  [[nodiscard]] Extent extent_of(const plan::Region& region, uint32_t k) const;

  [[nodiscard]] size_t bytes_of(uint64_t elements, const plan::Region& region) const {
    return plan::bytes_of(elements, call.signature.type, call.signature.encoding, region.encoded);
  }

  uint64_t grain_ = 1;
  Buffers own_;
  const Buffers* buffers_ = &own_;
  Extents input_, output_;
  std::vector<std::byte*> ring_places_;  // by message and slot

  [[nodiscard]] device::Flag* flags() const {
    return reinterpret_cast<device::Flag*>(flag_memory.data());
  }
};

}  // namespace hetccl::exec
