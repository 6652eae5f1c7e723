#include "comm/introduction.h"

namespace hetccl::comm {

namespace {

Result<std::shared_ptr<const Introduction>> make(const std::vector<std::vector<uint8_t>>& encoded) {
  std::vector<Card> cards;
  std::vector<topology::RankInfo> infos;
  cards.reserve(encoded.size());
  infos.reserve(encoded.size());
  for (size_t rank = 0; rank < encoded.size(); ++rank) {
    auto card = decode(encoded[rank]);
    if (!card.ok()) return card.status().with(format("rank %zu", rank));
    cards.push_back(std::move(card).value());
  }
  HETCCL_TRY(check_agreement(cards));
  auto made = std::make_shared<Introduction>();
  for (Card& card : cards) {
    infos.push_back(std::move(card.info));
    made->addresses.push_back(std::move(card.addresses));
  }
  HETCCL_ASSIGN(made->topology, topology::Topology::build(std::move(infos)));
  made->topology_json = made->topology.to_json();
  return std::shared_ptr<const Introduction>(std::move(made));
}

}  // namespace

Result<std::shared_ptr<const Introduction>> Introductions::read(
    uint64_t communicator, const std::vector<std::vector<uint8_t>>& encoded) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    // Those of communicators that are gone: few are alive at a time, so the walk is short.
    std::erase_if(entries_, [](const auto& one) {
      return one.second.use_count() == 1 && one.second->made.expired();
    });
    auto& slot = entries_[communicator];
    if (!slot) slot = std::make_shared<Entry>();
    entry = slot;
  }
  std::lock_guard lock(entry->mutex);
  if (auto made = entry->made.lock()) return made;
  HETCCL_ASSIGN(auto made, make(encoded));
  entry->made = made;
  return made;
}

}  // namespace hetccl::comm
