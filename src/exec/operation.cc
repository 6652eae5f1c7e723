#include "exec/operation.h"

#include <algorithm>
#include <new>

#include "base/encoding.h"

namespace hetccl::exec {

using lower::Memory;

void Operation::Extents::set(const lower::Layout& layout) {
  blocks.resize(layout.counts.size());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = {layout.offsets[i], layout.counts[i]};
}

Status Operation::prepare(const Program::Lowered& lowered, const Call& new_call) {
  code = lowered.code;
  call = new_call;
  input_.set(call.input);
  output_.set(call.output);
  call.input = call.output = {};  // point into the caller's memory
  slice_elements = lowered.slice_elements;
  n_slices = lowered.n_slices;
  outstanding = n_messages();
  turn = {};
  buffers_ = &own_;
  marks = nullptr;
  scratch_known = staging_known = false;
  given_up.store(false, std::memory_order_relaxed);
  started_at = {};
  grain_ = plan::grain_of(call.signature.type, call.signature.encoding);
  ring_places_.resize(code->messages.size() * code->n_slots);
  const size_t n_flags = code->syncs.size();
  HETCCL_TRY(flag_memory.reserve(n_flags * sizeof(device::Flag)));
  for (size_t i = 0; i < n_flags; ++i) new (flags() + i) device::Flag();
  return code->host_reduces > 0 || code->uses_identity ? prepare_arithmetic() : Status();
}

size_t Operation::scratch_bytes() const {
  return slice_elements * size_of(call.signature.type) * code->scratch_blocks * code->n_slots;
}

size_t Operation::staging_bytes() const {
  return slice_elements * size_of(call.signature.type) * code->staged_blocks * code->n_slots;
}

Status Operation::use_own_buffers() {
  const bool none = code->scratch_blocks + code->staged_blocks == 0;
  return none ? Status() : own_.reserve(scratch_bytes(), staging_bytes());
}

void Operation::hold_buffers(RegisteredMemory& memory) {
  staging_known = memory.hold(buffers_->staging.data(), staging_bytes(), holds);
  scratch_known = memory.hold(buffers_->scratch.data(), scratch_bytes(), holds);
}

bool Operation::is_registered(const lower::Operand& operand) const {
  switch (operand.memory) {
    case Memory::Input:
    case Memory::Output:
      return registered;
    case Memory::Scratch:
      return scratch_known;
    case Memory::Staging:
      return staging_known;
    default:
      return false;
  }
}

void Operation::use(const Rotation::Turn& taken) {
  turn = taken;
  buffers_ = taken.buffers;
}

Status Operation::prepare_arithmetic() {
  const Signature& signature = call.signature;
  if (code->uses_identity)
    HETCCL_TRY(identities.prepare(slice_elements, signature.type, signature.op));
  if (code->host_reduces == 0) return {};
  const size_t slice_bytes = std::max(slice_elements * size_of(signature.type),
                                      encoded_bytes(signature.encoding, slice_elements));
  return host_reductions.prepare(size_t{code->host_reduces} * n_slices, code->host_sources,
                                 slice_bytes);
}

Operation::Extent Operation::block_of(const plan::Region& region) const {
  if (region.buffer == plan::Buffer::Output) return output_.at(region.block, call.signature.count);
  const bool scratched = region.buffer == plan::Buffer::Scratch;
  return input_.at(scratched ? region.of : region.block, call.signature.count);
}

uint32_t Operation::slices_of(uint16_t number) const {
  if (!code->fixed_slices) return n_slices;
  const uint64_t count = block_of(code->messages[number].region).count;
  const uint64_t slices = count / slice_elements + (count % slice_elements != 0 ? 1 : 0);
  return static_cast<uint32_t>(std::max<uint64_t>(slices, 1));
}

size_t Operation::n_messages() const {
  size_t all = 0;
  for (uint16_t m = 0; m < code->messages.size(); ++m) all += slices_of(m);
  return all;
}

Operation::Extent Operation::extent_of(const plan::Region& region, uint32_t k) const {
  const Extent block = block_of(region);
  const auto [first, length, begin, end] =
      plan::part_of(region, block.count, slice_elements, k, grain_);
  if (region.buffer != plan::Buffer::Scratch) return {block.offset + first + begin, end - begin};
  const uint64_t run =
      uint64_t{k % code->n_slots} * code->scratch_blocks + region.block - region.run;
  return {region.run * length + begin, region.blocks * (end - begin), run * slice_elements};
}

uint64_t Operation::first_element(const plan::Region& region, uint32_t k) const {
  const uint64_t block = region.buffer == plan::Buffer::Scratch ? region.of : region.block;
  const uint64_t count = call.signature.count;
  const plan::SlicePart part = plan::part_of(region, count, slice_elements, k, grain_);
  return block * count + part.first + part.begin;
}

size_t Operation::bytes_of(const plan::Region& region, uint32_t k) const {
  return bytes_of(extent_of(region, k).count, region);
}

Span Operation::resolve_whole(const lower::Operand& operand) const {
  const Extent block = block_of(operand.region);
  auto* base = operand.memory == Memory::Output
                   ? static_cast<std::byte*>(call.recv)
                   : static_cast<std::byte*>(const_cast<void*>(call.send));
  const size_t width = size_of(call.signature.type);
  return {base == nullptr ? nullptr : base + block.offset * width, block.count,
          block.count * width};
}

Span Operation::resolve(const lower::Operand& operand, uint32_t k) const {
  const Extent extent = extent_of(operand.region, k);
  const size_t width = size_of(call.signature.type);
  const size_t bytes = bytes_of(extent.count, operand.region);
  const auto at = [&](std::byte* base) -> Span {
    if (base == nullptr) return {nullptr, extent.count, bytes};
    return {base + extent.base * width + bytes_of(extent.offset, operand.region), extent.count,
            bytes};
  };
  switch (operand.memory) {
    case Memory::Input:
      return at(static_cast<std::byte*>(const_cast<void*>(call.send)));
    case Memory::Output:
      return at(static_cast<std::byte*>(call.recv));
    case Memory::Scratch:
      return at(buffers_->scratch.data());
    case Memory::Identity:
      return {identities.data(), extent.count, bytes};
    case Memory::Host:  // never an operand's
      break;
    case Memory::Staging: {
      const size_t place =
          size_t{k % code->n_slots} * code->staged_blocks + code->messages[operand.message].staged;
      return {buffers_->staging.data() + place * slice_elements * width, extent.count, bytes};
    }
    case Memory::Ring:
      return {ring_places_[operand.message * size_t{code->n_slots} + k % code->n_slots],
              extent.count, bytes};
  }
  return {};
}

void Operation::release_waits() {
  for (size_t i = 0; i < code->syncs.size(); ++i) {
    if (i == lower::kFinished) continue;
    flags()[i].word.store(device::kFlagAborted, std::memory_order_release);
  }
}

}  // namespace hetccl::exec
