// One collective in flight: what the caller asked, its flags, where its scratch and staging are,
// and the messages it still moves. Operations are recycled, so that steady state allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/types.h"
#include "device/device.h"
#include "exec/arena.h"
#include "exec/end_marks.h"
#include "exec/host_arithmetic.h"
#include "exec/program.h"
#include "exec/rotation.h"
#include "exec/window.h"
#include "plan/schedule.h"

namespace hetccl::exec {

/// Where the blocks of an uneven call's buffer lie, in elements: one entry for each of the plan's
/// blocks.
struct Layout {
  std::span<const uint64_t> counts, offsets;
};

/// The launch parameters of one collective.
struct Call {
  const void* send = nullptr;
  void* recv = nullptr;
  Signature signature;
  Factor factor;  ///< of this rank, for PreMulSum
  uint64_t sequence = 0;
  TimePoint deadline = TimePoint::max();
  TimePoint launched{};
  Layout input{}, output{};  ///< of an uneven call; read by `launch` alone
  bool begun = false;        ///< by `Executor::all_reduce_at_once`
  bool awaited = false;      ///< its caller waits: its end is to be known at once
};

/// What a message carries.
struct Payload {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

/// A piece of memory that a region of a slice denotes.
struct Span {
  std::byte* data = nullptr;
  uint64_t count = 0;  ///< elements
};

struct Operation {
  explicit Operation(device::Device& device)
      : flag_memory(device, Arena::Kind::Pinned),
        host_reductions(device),
        identities(device),
        own_(device) {}

  /// For `program` with the given geometry: takes memory for flags, and resets them and lists.
  /// `staged`: messages go through pinned memory; `shared`: by lane, what this rank's device shares
  /// with the other's, or null. Empty: nothing.
  Status prepare(const Program& program, const Call& call, uint64_t slice_elements, uint32_t slices,
                 uint32_t slot_count, bool staged, std::span<Window* const> shared = {});
  /// What it needs once it is prepared, in bytes.
  [[nodiscard]] size_t scratch_bytes() const;
  [[nodiscard]] size_t staging_bytes() const;
  /// Has it work in buffers of its own, or in those of a turn: after `prepare`.
  Status use_own_buffers();
  void use(const Rotation::Turn& turn);
  /// Fills `sends` and `recvs`.
  void list_messages(uint32_t depth);
  /// Takes memory for its reductions to be done by the host.
  Status prepare_host_reductions();

  /// Where `region` of slice `k` lies.
  [[nodiscard]] Span resolve(const plan::Region& region, uint32_t k) const;
  /// Where `region` lies, source `index` of a Reduce or Copy, or what shard `index` broadcasts:
  /// where it arrived, if it `stays` there.
  [[nodiscard]] Span source(plan::Issue issue, const plan::Region& region, size_t index) const;
  /// Where `region` is to lie, the result of a Reduce or Copy, or that of shard `index`: where it
  /// leaves from, if it `stays` there.
  [[nodiscard]] Span result(plan::Issue issue, const plan::Region& region, size_t index = 0) const;
  /// Where the message of a step lies that `stays`.
  [[nodiscard]] std::byte*& lies_at(plan::Issue issue) {
    return lies[issue.step * size_t{n_slots} + issue.slice % n_slots];
  }
  /// The staging memory of wire step `step` in slice `k`.
  [[nodiscard]] std::byte* staging_of(uint16_t step, uint32_t k) const;
  /// What the message of a wire step goes from or to.
  [[nodiscard]] Payload payload(plan::Issue issue) const;
  /// Through which the messages of wire step `step` go, or null: as both ends see it, by the
  /// lengths of the first slice's.
  [[nodiscard]] Window* window_of(uint16_t step) const { return windows[step]; }
  /// Of a Recv through a window: so many slices before may still be unread there when its message
  /// is written.
  [[nodiscard]] size_t slices_unread(uint16_t step) const;
  [[nodiscard]] device::Flag& done_of(uint16_t step) { return flags()[step]; }
  /// Counts slices whose staging memory is filled: by the device (Send), or from the wire (Recv).
  [[nodiscard]] device::Flag& staged_of(uint16_t step) { return flags()[n_steps + step]; }
  /// The user's stream has reached the collective.
  [[nodiscard]] device::Flag& started() { return flags()[2 * n_steps]; }
  /// Where the device says that it is done and has joined the user's stream, unless a mark does.
  [[nodiscard]] device::Flag& finished() { return flags()[2 * n_steps + 1]; }
  [[nodiscard]] bool is_finished() {
    return finished().reached(1) || (marks != nullptr && marks->ended(mark));
  }
  /// Finished, and what it copied out is sent.
  [[nodiscard]] bool ended() { return is_finished() && unsent == 0; }
  /// Ends all waits of device work on this operation.
  void release_waits();

  const Program* program =
      nullptr;  ///< null: one call of the vendor's library on the user's stream
  Call call;
  size_t n_steps = 0;
  uint64_t slice_elements = 0;
  uint32_t n_slices = 1;
  uint32_t n_slots = 1;
  uint64_t grain = 1;
  Arena flag_memory;
  HostReductions host_reductions;
  IdentityArray identities;
  size_t message_bytes = 0;  ///< of the staging memory of one (step, slot)
  Rotation::Turn turn;       ///< of the buffers it works in, or none
  /// By step: its message is read where it arrived, or made where it leaves from. Set before
  /// anything is enqueued.
  std::vector<char> stays;
  /// By step and slot: see `lies_at`.
  std::vector<std::byte*> lies;
  std::vector<Window*> windows;  ///< by step: see `window_of`
  /// Messages that the device copies out and that are still to be sent; the engine's once launched.
  size_t unsent = 0;
  bool staged = false;                ///< see `prepare`
  EndMarks* marks = nullptr;          ///< that tell its end, or null
  uint32_t mark = 0;                  ///< of `marks`
  std::atomic<bool> given_up{false};  ///< enqueueing failed half-way: nothing more is sent
  /// Messages in the static order, by lane (index into program->peers).
  std::vector<std::vector<plan::Issue>> sends, recvs;

 private:
  /// Elements [offset, offset + count) of a buffer.
  struct Extent {
    uint64_t offset = 0, count = 0;
  };
  struct Extents {
    std::vector<Extent> blocks;  ///< empty: all as long as the call's count
    [[nodiscard]] Extent at(uint32_t block, uint64_t count) const {
      return blocks.empty() ? Extent{block * count, count} : blocks[block];
    }
    void set(const Layout& layout);
  };
  [[nodiscard]] Span where_it_lies(Span span, const std::vector<int>& messages, size_t index,
                                   uint32_t k) const;

  Buffers own_;
  const Buffers* buffers_ = &own_;
  Extents input_, output_;
  std::vector<size_t> lane_bytes_;  // of a slice, in windows: received, sent; by lane

  bool find_windows(std::span<Window* const> shared);

  [[nodiscard]] device::Flag* flags() const {
    return reinterpret_cast<device::Flag*>(flag_memory.data());
  }
};

}  // namespace hetccl::exec
