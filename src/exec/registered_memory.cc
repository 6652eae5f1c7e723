#include "exec/registered_memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "exec/card_trial.h"

namespace hetccl::exec {
namespace {

// GPU allocators take few large pieces. If there are more than this, the oldest registrations make
// room.
constexpr size_t kMost = 4096;
constexpr uint64_t kLooksEvery = 4;  // holds between checks for freed memory; a check asks the
                                     // driver
constexpr int64_t kTrialMs = 5000;

transport::Memory memory_of(const device::Allocation& allocation, const device::DmaBuf& exported,
                            bool needs_flush) {
  const bool on_device = allocation.on_device;
  return {.data = allocation.base,
          .bytes = allocation.bytes,
          .kind = on_device ? transport::MemoryKind::Device : transport::MemoryKind::Host,
          .dmabuf = exported.fd.get(),
          .dmabuf_offset = exported.offset,
          .needs_flush = on_device && needs_flush};
}

bool contains(const device::Allocation& allocation, const std::byte* at) {
  return at >= allocation.base && at < allocation.base + allocation.bytes;
}

bool is_same(const device::Allocation& one, const device::Allocation& other) {
  return one.base == other.base && one.bytes == other.bytes && one.id == other.id;
}

}  // namespace

RegisteredMemory::RegisteredMemory(device::Device& device,
                                   std::vector<transport::Transport*> transports)
    : device_(device),
      joins_(std::all_of(transports.begin(), transports.end(),
                         [](const auto* one) { return one->joins_registrations(); })) {
  for (transport::Transport* const one : transports) transports_.push_back({one});
}

bool RegisteredMemory::reaches(const transport::Transport& transport) const {
  return why_not(transport).empty();
}

std::string RegisteredMemory::why_not(const transport::Transport& transport) const {
  for (const Transport& one : transports_)
    if (one.transport == &transport) return one.why_not;
  return "it registers no memory";
}

void RegisteredMemory::try_cards(WaitLimit limit) {
  const std::lock_guard lock(trying_);
  if (tried_ || (device_.capabilities() & device::kHostAccessible) != 0) return;
  limit.timeout_ms = std::min(limit.timeout_ms, kTrialMs);
  for (Transport& one : transports_) {
    one.why_not.clear();  // the trial registers only its own memory
    Status status;
    for (size_t card = 0; status.ok() && card < one.transport->n_cards(); ++card)
      status = try_card(*one.transport, card, limit);
    if (status.ok() && one.transport->n_cards() == 0) one.why_not = "it reaches no device";
    if (!status.ok()) one.why_not = status.message();
  }
  tried_ = limit.cancelled().ok();  // else the next communicator tries again
}

Status RegisteredMemory::try_card(transport::Transport& transport, size_t card,
                                  const WaitLimit& limit) {
  HETCCL_ASSIGN(auto trial, CardTrial::prepare(device_));
  std::vector<Hold> holds;
  for (const auto& [data, bytes] : trial->memory())
    if (!hold(data, bytes, holds)) return why_unknown(data);
  return trial->run(transport, card, limit);
}

// Remembers refusals, so that no later call asks again.
std::shared_ptr<RegisteredMemory::Entry> RegisteredMemory::make_entry(
    const device::Allocation& allocation) const {
  auto entry = std::make_shared<Entry>();
  entry->allocation = allocation;
  entry->refused = register_with_all(*entry);
  return entry;
}

// Registers with every transport that must have this kind of memory.
Status RegisteredMemory::register_with_all(Entry& entry) const {
  const bool on_device = entry.allocation.on_device;
  const bool wanted = std::any_of(transports_.begin(), transports_.end(), [&](const auto& one) {
    return !on_device || one.why_not.empty();
  });
  if (!wanted) return {};
  device::DmaBuf exported;
  Status no_dmabuf;
  if (on_device) {
    auto made = device_.export_memory(entry.allocation);
    no_dmabuf = made.status();
    if (made.ok()) exported = std::move(made).value();
  }
  const transport::Memory memory = memory_of(entry.allocation, exported, device_.needs_flush());
  for (const Transport& one : transports_) {
    if (on_device && !one.why_not.empty()) continue;
    auto made = one.transport->register_memory(memory);
    if (!made.ok() && !no_dmabuf.ok()) return made.status().with(no_dmabuf.message());
    HETCCL_TRY(made.status());
    if (made.value() != nullptr) entry.registrations.push_back(std::move(made).value());
  }
  return {};
}

const std::shared_ptr<RegisteredMemory::Entry>& RegisteredMemory::entry_of(
    const device::Allocation& allocation) {
  const auto known = entries_.find(allocation.base);
  if (known != entries_.end() && is_same(known->second->allocation, allocation))
    return known->second;
  forget_overlapped(allocation);
  return entries_[allocation.base] = make_entry(allocation);
}

Status RegisteredMemory::why_unknown(const void* data) {
  const auto allocation = device_.find_allocation(data);
  if (!allocation)
    return error(ErrorCode::Unsupported, "%s does not say what memory lies at %p",
                 device_.vendor().c_str(), data);
  const std::lock_guard lock(mutex_);
  return entry_of(*allocation)->refused;
}

std::shared_ptr<RegisteredMemory::Entry> RegisteredMemory::find_kept(const std::byte* at) const {
  const auto after = kept_.upper_bound(at);
  if (after == kept_.begin()) return nullptr;
  const std::shared_ptr<Entry>& entry = std::prev(after)->second;
  return contains(entry->allocation, at) ? entry : nullptr;
}

bool RegisteredMemory::hold(const void* data, size_t bytes, std::vector<Hold>& holds) {
  if (bytes == 0) return true;
  const std::lock_guard lock(mutex_);
  ++uses_;
  if (uses_ % kLooksEvery == 0) forget_one_freed();
  make_room();
  const auto* at = static_cast<const std::byte*>(data);
  for (const std::byte* const end = at + bytes; at < end;) {
    if (at != data && !joins_) return false;
    if (auto kept = find_kept(at); kept != nullptr) {
      at = kept->allocation.base + kept->allocation.bytes;
      holds.push_back(std::move(kept));
      continue;
    }
    const auto allocation = device_.find_allocation(at);
    if (!allocation) return false;
    const std::shared_ptr<Entry>& entry = entry_of(*allocation);
    entry->used = uses_;
    if (!entry->refused.ok()) return false;
    holds.push_back(entry);
    at = allocation->base + allocation->bytes;
  }
  return true;
}

Result<RegisteredMemory::Hold> RegisteredMemory::keep(void* data, size_t bytes) {
  const device::Allocation promised{.base = static_cast<std::byte*>(data), .bytes = bytes};
  auto entry = make_entry(promised);
  HETCCL_TRY(entry->refused);
  const std::lock_guard lock(mutex_);
  kept_[promised.base] = entry;
  return Hold(entry.get(), [this, entry](const void*) {
    const std::lock_guard ending(mutex_);
    const auto known = kept_.find(entry->allocation.base);
    if (known != kept_.end() && known->second == entry) kept_.erase(known);
  });
}

// Keeps memory that a call in flight holds: deregistering it would make the engine wait.
void RegisteredMemory::make_room() {
  while (entries_.size() > kMost) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      const bool free = at->second.use_count() == 1;
      if (free && (oldest == entries_.end() || at->second->used < oldest->second->used))
        oldest = at;
    }
    if (oldest == entries_.end()) return;
    entries_.erase(oldest);
  }
}

// Allocations do not overlap, so older overlapping entries were freed. They must go: the same
// memory may return under another mapping, and NCCL plug-ins find registrations by address.
void RegisteredMemory::forget_overlapped(const device::Allocation& allocation) {
  std::erase_if(entries_, [&](const auto& known) {
    const device::Allocation& other = known.second->allocation;
    return other.base < allocation.base + allocation.bytes &&
           allocation.base < other.base + other.bytes;
  });
}

// A dma-buf would keep memory that its user has freed.
void RegisteredMemory::forget_one_freed() {
  auto next = entries_.upper_bound(looked_at_);
  if (next == entries_.end()) next = entries_.begin();
  if (next == entries_.end()) return;
  looked_at_ = next->first;
  const auto now = device_.find_allocation(next->first);
  if (!now || !is_same(*now, next->second->allocation)) entries_.erase(next);
}

}  // namespace hetccl::exec
