// A collective or a message in flight: what the caller asked, the Code that runs it, its flags, and
// where its memory is. Operations are recycled, so that steady state allocates nothing.
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
  Factor factor;             ///< of this rank, for PreMulSum
  uint32_t salt = 0;         ///< of stochastic encodings
  void* residual = nullptr;  ///< as long as the input, or null
  uint64_t sequence = 0;
  uint32_t tag = 0;  ///< of a message from rank to rank; equal at both ends
  TimePoint deadline = TimePoint::max();
  TimePoint launched{};
  Layout input{}, output{};  ///< of an uneven call; read by `launch` alone
  bool begun = false;        ///< by `Executor::all_reduce_at_once`
  bool awaited = false;      ///< its caller waits: its end is to be known at once
  bool timed = false;        ///< ExecutorOptions::on_timed is to know how long it takes
  uint64_t round = 0;        ///< of tuning, in which its setting was decided; equal on all ranks
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

  /// For a call: takes memory for flags, which it resets, for the host's arithmetic and for
  /// identities.
  Status prepare(const Program::Lowered& lowered, const Call& call);
  /// What it needs once it is prepared, in bytes.
  [[nodiscard]] size_t scratch_bytes() const;
  [[nodiscard]] size_t staging_bytes() const;
  /// Whether transports know the memory of `operand`.
  [[nodiscard]] bool knows(const lower::Operand& operand) const;
  /// Has transports know the buffers that it works in, where they can.
  void hold_buffers(RegisteredMemory& memory);
  /// Has it work in buffers of its own, or in those of a turn: after `prepare`.
  Status use_own_buffers();
  void use(const Rotation::Turn& turn);

  /// Where `operand` lies in slice `k`.
  [[nodiscard]] Span resolve(const lower::Operand& operand, uint32_t k) const;
  /// The number of a region's first element in slice `k`: of the call's elements, block by block.
  [[nodiscard]] uint64_t first_element(const plan::Region& region, uint32_t k) const;
  /// Where the block lies of which `operand` is the whole. (Input and output alone.)
  [[nodiscard]] Span resolve_whole(const lower::Operand& operand) const;
  /// Whether that message of the Code travels in slice `k`; or, where slices are fixed, has ended
  /// before.
  [[nodiscard]] bool travels(uint16_t number, uint32_t k) const {
    return !code->fixed_slices || k == 0 || k < slices_of(number);
  }
  /// Slices in which that message travels.
  [[nodiscard]] uint32_t slices_of(uint16_t number) const;
  /// Messages of all slices.
  [[nodiscard]] size_t n_messages() const;
  /// The length of a region of slice `k`, in bytes.
  [[nodiscard]] size_t bytes_of(const plan::Region& region, uint32_t k) const;
  /// Where that message of slice `k` lies in the ring: set where its place is taken.
  [[nodiscard]] std::byte*& ring_place(uint16_t number, uint32_t k) {
    return ring_places_[number * size_t{code->n_slots} + k % code->n_slots];
  }
  [[nodiscard]] device::Flag& flag(lower::SyncId sync) { return flags()[sync]; }
  /// The count of a sync that a wait in slice `k` is for; 0 where there is nothing to wait for.
  [[nodiscard]] uint32_t awaited(const lower::Instruction& wait, uint32_t k) const {
    if (code->syncs[wait.sync].once) return 1;
    return k < wait.back ? 0 : k - wait.back + 1;
  }
  /// The count of a sync once it is signalled in slice `k`.
  [[nodiscard]] uint32_t counted(lower::SyncId sync, uint32_t k) const {
    return code->syncs[sync].once ? 1 : k + 1;
  }
  /// The count of that message's sync once it is complete in slice `k`.
  [[nodiscard]] uint32_t completed(uint16_t number, uint32_t k) const {
    return travels(number, k + 1) ? k + 1 : n_slices;
  }
  [[nodiscard]] bool is_over(const lower::Instruction& wait, uint32_t k) {
    return flag(wait.sync).reached(awaited(wait, k));
  }
  /// The user's stream has reached the collective.
  [[nodiscard]] device::Flag& started() { return flag(lower::kStarted); }
  /// Whether a timed call of the library's alone is to say when its stream has come to it: its Code
  /// does not, to save the time that it takes.
  [[nodiscard]] bool marks_start() const {
    return code->one_library_call && call.timed && !call.awaited;
  }
  [[nodiscard]] bool tells_start() const { return !code->one_library_call || marks_start(); }
  /// Where the device says that it is done and has joined the user's stream, unless a mark does.
  [[nodiscard]] device::Flag& finished() { return flag(lower::kFinished); }
  [[nodiscard]] bool is_finished() {
    return finished().reached(1) || (marks != nullptr && marks->ended(mark));
  }
  /// Finished, and its messages are complete.
  [[nodiscard]] bool ended() { return is_finished() && outstanding == 0; }
  /// Ends all waits of device work on this operation.
  void release_waits();
  /// Becomes one of `its_order`, in the call that `its_lead` leads.
  void enter(Order& its_order, Operation& its_lead, bool library) {
    order = &its_order;
    lead = &its_lead;
    by_library = library;
  }
  [[nodiscard]] bool is_message() const {
    return call.signature.collective == Collective::PointToPoint;
  }
  /// The number by which its recorder knows it.
  [[nodiscard]] uint64_t recorded_as() const { return is_message() ? posting : call.sequence; }
  /// Whether it is a message that cannot end without its other end.
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
  Rotation::Turn turn;        ///< of the buffers it works in, or none
  size_t outstanding = 0;     ///< messages that are not complete; the engine's once launched
  EndMarks* marks = nullptr;  ///< that tell its end, or null
  uint32_t mark = 0;          ///< of `marks`
  TimePoint started_at{};     ///< when the user's stream had reached it, of a timed call
  /// Which memory transports know: the user's, scratch, staging.
  bool registered = false, scratch_known = false, staging_known = false;
  std::vector<RegisteredMemory::Hold> holds;  ///< of all memory of the call that they know
  std::atomic<bool> given_up{false};          ///< enqueueing failed half-way: nothing more is sent

  Order* order = nullptr;     ///< that it belongs to
  Operation* lead = nullptr;  ///< the first operation of its call
  Completion& completion;     ///< of the call that it leads

  // Of a message.
  Message message;
  bool by_library = false;  ///< the cluster's library carries it, not a channel
  uint64_t posting = 0;     ///< its place among all messages of this rank

 private:
  Status prepare_arithmetic();
  /// Elements [offset, offset + count) of a buffer; of scratch, from its element `base` on.
  struct Extent {
    uint64_t offset = 0, count = 0;
    uint64_t base = 0;
  };
  struct Extents {
    std::vector<Extent> blocks;  ///< empty: all as long as the call's count
    [[nodiscard]] Extent at(uint32_t block, uint64_t count) const {
      return blocks.empty() ? Extent{block * count, count} : blocks[block];
    }
    void set(const lower::Layout& layout);
  };
  /// Where the block lies of which a region is a part; for scratch the block of the input.
  [[nodiscard]] Extent block_of(const plan::Region& region) const;
  /// Where a region of a slice lies in its buffer, in elements.
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
