#include "exec/operation.h"

#include <algorithm>
#include <new>

namespace hetccl::exec {

void Operation::Extents::set(const Layout& layout) {
  blocks.resize(layout.counts.size());
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = {layout.offsets[i], layout.counts[i]};
}

Status Operation::prepare(const Program& new_program, const Call& new_call,
                          uint64_t new_slice_elements, uint32_t slices, uint32_t slot_count,
                          bool through_staging, std::span<Window* const> shared) {
  program = &new_program;
  call = new_call;
  input_.set(call.input);
  output_.set(call.output);
  call.input = call.output = {};  // the caller's memory
  slice_elements = new_slice_elements;
  n_slices = slices;
  n_slots = slot_count;
  staged = through_staging;
  unsent = 0;
  turn = {};
  buffers_ = &own_;
  marks = nullptr;
  given_up.store(false, std::memory_order_relaxed);
  grain = plan::grain_of(call.signature.type);
  n_steps = new_program.steps.size();
  stays.assign(n_steps, 0);
  lies.resize(n_steps * n_slots);

  const bool all_shared = find_windows(shared);
  message_bytes = staged && !all_shared ? slice_elements * size_of(call.signature.type) : 0;
  const size_t n_flags = 2 * n_steps + 2;
  HETCCL_TRY(flag_memory.reserve(n_flags * sizeof(device::Flag)));
  for (size_t i = 0; i < n_flags; ++i) new (flags() + i) device::Flag();
  return {};
}

size_t Operation::scratch_bytes() const {
  return slice_elements * size_of(call.signature.type) * program->plan.scratch_blocks * n_slots;
}

size_t Operation::staging_bytes() const {
  return message_bytes * program->n_messages * n_slots;
}

Status Operation::use_own_buffers() {
  return own_.reserve(scratch_bytes(), staging_bytes());
}

void Operation::use(const Rotation::Turn& taken) {
  turn = taken;
  buffers_ = taken.buffers;
}

// All messages of a slice that go the same way fit into half of the ring, or none goes through it:
// so none ever waits until a later one, or one of its own stage, has been read. The messages of a
// shorter slice are as short, but for a grain that each may have gained where pieces are rounded.
// True where there is a window for every message.
bool Operation::find_windows(std::span<Window* const> shared) {
  windows.assign(n_steps, nullptr);
  lane_bytes_.assign(2 * shared.size(), 0);
  const auto bytes_of = [this](uint16_t step) -> size_t& {
    const StepInfo& info = program->steps[step];
    return lane_bytes_[2 * size_t{info.lane} + (info.queue == Queue::Send ? 1 : 0)];
  };
  const size_t gained = n_slices > 1 ? grain * size_of(call.signature.type) : 0;
  for (uint16_t step = 0; step < n_steps && !shared.empty(); ++step) {
    const Queue queue = program->steps[step].queue;
    if (queue != Queue::Send && queue != Queue::Recv) continue;
    bytes_of(step) += WindowRing::room(payload({0, step}).bytes + gained);
  }
  bool all = true;
  for (uint16_t step = 0; step < n_steps; ++step) {
    const StepInfo& info = program->steps[step];
    if (info.queue != Queue::Send && info.queue != Queue::Recv) continue;
    Window* window = shared.empty() ? nullptr : shared[info.lane];
    if (window != nullptr && window->out.fits(bytes_of(step))) windows[step] = window;
    all = all && windows[step] != nullptr;
  }
  return all;
}

size_t Operation::slices_unread(uint16_t step) const {
  return window_of(step)->in.slices_unread(lane_bytes_[2 * size_t{program->steps[step].lane}]);
}

void Operation::list_messages(uint32_t depth) {
  const size_t lanes = program->peers.size();
  if (sends.size() < lanes) sends.resize(lanes), recvs.resize(lanes);
  for (auto& list : sends) list.clear();
  for (auto& list : recvs) list.clear();
  plan::for_each_issue(program->plan, depth, n_slices, [&](plan::Issue issue) {
    const StepInfo& info = program->steps[issue.step];
    if (info.queue == Queue::Send) {
      sends[info.lane].push_back(issue);
      if (staged || window_of(issue.step) != nullptr) ++unsent;
    }
    if (info.queue == Queue::Recv) recvs[info.lane].push_back(issue);
  });
}

Status Operation::prepare_host_reductions() {
  const size_t slice_bytes = slice_elements * size_of(call.signature.type);
  return host_reductions.prepare(program->n_reduces * n_slices, program->most_sources, slice_bytes);
}

Span Operation::resolve(const plan::Region& region, uint32_t k) const {
  const bool scratched = region.buffer == plan::Buffer::Scratch;
  const Extent block = region.buffer == plan::Buffer::Output
                           ? output_.at(region.block, call.signature.count)
                           : input_.at(scratched ? region.of : region.block, call.signature.count);
  const uint64_t first = static_cast<uint64_t>(k) * slice_elements;
  const uint64_t length = first < block.count ? std::min(slice_elements, block.count - first) : 0;
  const uint64_t begin = plan::element(region.begin, length, grain);
  const uint64_t end = plan::element(region.end, length, grain);
  std::byte* base = nullptr;
  uint64_t offset = block.offset + first;
  switch (region.buffer) {
    case plan::Buffer::Input:
      base = static_cast<std::byte*>(const_cast<void*>(call.send));
      break;
    case plan::Buffer::Output:
      base = static_cast<std::byte*>(call.recv);
      break;
    case plan::Buffer::Scratch:
      base = buffers_->scratch.data();
      offset = (static_cast<uint64_t>(k % n_slots) * program->plan.scratch_blocks + region.block) *
               slice_elements;
      break;
    case plan::Buffer::Identity:
      return {identities.data(), end - begin};
  }
  if (base == nullptr) return {nullptr, end - begin};
  return {base + (offset + begin) * size_of(call.signature.type), end - begin};
}

Span Operation::source(plan::Issue issue, const plan::Region& region, size_t index) const {
  const Span span = resolve(region, issue.slice);
  return where_it_lies(span, program->steps[issue.step].arrivals, index, issue.slice);
}

Span Operation::result(plan::Issue issue, const plan::Region& region, size_t index) const {
  const Span span = resolve(region, issue.slice);
  return where_it_lies(span, program->steps[issue.step].departures, index, issue.slice);
}

// `messages`: by index the step of which `span` is the message, or -1; or empty.
Span Operation::where_it_lies(Span span, const std::vector<int>& messages, size_t index,
                              uint32_t k) const {
  if (messages.empty() || messages[index] < 0) return span;
  const auto step = static_cast<size_t>(messages[index]);
  if (stays[step] != 0) span.data = lies[step * n_slots + k % n_slots];
  return span;
}

Payload Operation::payload(plan::Issue issue) const {
  const plan::Step& step = program->plan.steps[issue.step];
  const bool send = program->steps[issue.step].queue == Queue::Send;
  const Span span = resolve(send ? step.srcs[0] : step.dst, issue.slice);
  return {span.data, span.count * size_of(call.signature.type)};
}

std::byte* Operation::staging_of(uint16_t step, uint32_t k) const {
  const size_t message = program->steps[step].message;
  return buffers_->staging.data() + (message * n_slots + k % n_slots) * message_bytes;
}

void Operation::release_waits() {
  for (size_t i = 0; i < 2 * n_steps + 1; ++i) {
    flags()[i].word.store(device::kFlagAborted, std::memory_order_release);
  }
}

}  // namespace hetccl::exec
