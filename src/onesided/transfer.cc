#include "onesided/transfer.h"

#include <algorithm>

namespace hetccl::onesided {

Result<std::shared_ptr<const BlockList>> BlockList::make(const Regions& regions,
                                                         std::span<const Block> blocks) {
  auto list = std::make_shared<BlockList>();
  Regions::Lookup lookup(regions);
  const Block* before = nullptr;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    auto use = lookup.use(block.local_region, block.local_offset, block.bytes, 0);
    if (!use.ok()) return use.status().with(format("block %zu", i));
    if (block.bytes == 0) continue;
    list->bytes_ += block.bytes;
    const bool follows = before != nullptr && before->local_region == block.local_region &&
                         before->remote_region == block.remote_region &&
                         before->local_offset + before->bytes == block.local_offset &&
                         before->remote_offset + before->bytes == block.remote_offset;
    before = &block;
    if (follows) {
      list->parts_.back().bytes += block.bytes;
      continue;
    }
    list->parts_.push_back({use.value().at(block.local_offset), block.remote_region,
                            block.remote_offset, block.bytes});
    list->regions_.push_back(block.local_region);
  }
  std::sort(list->regions_.begin(), list->regions_.end());
  list->regions_.erase(std::unique(list->regions_.begin(), list->regions_.end()),
                       list->regions_.end());
  return std::shared_ptr<const BlockList>(std::move(list));
}

Walk::Step Walk::step() const {
  const BlockList::Part& part = list_->parts()[part_];
  const uint64_t bytes = std::min(part.bytes - offset_, most_);
  Place local = part.local;
  local.data += offset_;
  return {local, {part.region, part.offset + offset_, bytes}};
}

void Walk::advance() {
  const BlockList::Part& part = list_->parts()[part_];
  offset_ += std::min(part.bytes - offset_, most_);
  if (offset_ < part.bytes) return;
  offset_ = 0;
  ++part_;
}

void Transfer::when_done(Hook hook) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      hook_ = std::move(hook);
      return;
    }
  }
  hook(status_);
}

void Transfer::finish(Status status) {
  Hook hook;
  uses.clear();
  {
    const std::lock_guard lock(mutex_);
    if (done()) return;
    status_ = std::move(status);
    done_.store(true, std::memory_order_release);
    hook = std::move(hook_);
  }
  if (hook) hook(status_);
}

}  // namespace hetccl::onesided
