#include "exec/rotation.h"

#include <algorithm>
#include <new>
#include <utility>

namespace hetccl::exec {

Result<std::unique_ptr<Rotation>> Rotation::create(device::Device& device) {
  std::unique_ptr<Rotation> rotation(new Rotation(device));
  auto& sets = rotation->sets_;
  HETCCL_ASSIGN(void* flags, device.allocate_pinned(sets.size() * sizeof(device::Flag)));
  rotation->flags_ = static_cast<std::byte*>(flags);
  for (size_t i = 0; i < sets.size(); ++i) {
    sets[i].buffers = std::make_unique<Buffers>(device);
    sets[i].left = new (rotation->flags_ + i * sizeof(device::Flag)) device::Flag;
  }
  return rotation;
}

Rotation::~Rotation() {
  if (flags_ != nullptr) device_.free_pinned(flags_);
}

Result<Rotation::Turn> Rotation::take(uint64_t number, uint64_t retired, size_t scratch_bytes,
                                      size_t staging_bytes) {
  auto chosen =
      std::find_if(sets_.begin(), sets_.end(), [&](const Set& set) { return set.last <= retired; });
  if (chosen == sets_.end()) {
    chosen = std::min_element(sets_.begin(), sets_.end(),
                              [](const Set& a, const Set& b) { return a.last < b.last; });
  }
  std::erase_if(outgrown_, [&](const Outgrown& old) { return old.last <= retired; });
  HETCCL_TRY(make_room(*chosen, retired, scratch_bytes, staging_bytes));
  const Turn turn = {chosen->buffers.get(), chosen->left, chosen->turns++};
  chosen->last = number + 1;
  return turn;
}

Result<Rotation::Turn> Rotation::enlarge(const Turn& turn, uint64_t retired, size_t scratch_bytes,
                                         size_t staging_bytes) {
  const auto its = std::find_if(sets_.begin(), sets_.end(),
                                [&](const Set& set) { return set.left == turn.left; });
  HETCCL_TRY(make_room(*its, retired, scratch_bytes, staging_bytes));
  return Turn{its->buffers.get(), turn.left, turn.before};
}

Status Rotation::make_room(Set& set, uint64_t retired, size_t scratch_bytes, size_t staging_bytes) {
  Buffers& buffers = *set.buffers;
  const size_t scratch = buffers.scratch.bytes(), staging = buffers.staging.bytes();
  if (scratch_bytes <= scratch && staging_bytes <= staging) return {};
  if (set.last <= retired) return buffers.reserve(scratch_bytes, staging_bytes);
  auto larger = std::make_unique<Buffers>(device_);
  const auto grown = [](size_t bytes, size_t had) {
    return bytes <= had ? had : std::max(bytes, 2 * had);
  };
  HETCCL_TRY(larger->reserve(grown(scratch_bytes, scratch), grown(staging_bytes, staging)));
  outgrown_.push_back({std::exchange(set.buffers, std::move(larger)), set.last});
  return {};
}

// Once only: counts compare cyclically, so adding the mark twice would undo the release.
void Rotation::release_waits() {
  if (std::exchange(released_, true)) return;
  for (Set& set : sets_) {
    auto& word = set.left->word;
    word.store(word.load(std::memory_order_relaxed) + device::kFlagAborted,
               std::memory_order_release);
  }
}

}  // namespace hetccl::exec
