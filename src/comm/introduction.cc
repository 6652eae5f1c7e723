#include "comm/introduction.h"

namespace hetccl::comm {

namespace {

Result<Introduction> make(const std::vector<std::vector<uint8_t>>& encoded,
                          const topology::AdaptorTraits& traits) {
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
  Introduction made;
  for (Card& card : cards) {
    infos.push_back(std::move(card.info));
    made.addresses.push_back(std::move(card.addresses));
    made.cores.push_back(std::move(card.cores));
  }
  HETCCL_ASSIGN(made.topology, topology::Topology::build(std::move(infos), traits));
  return made;
}

}  // namespace

Introduction::Sharers Introduction::sharers(int rank) const {
  const auto& infos = topology.infos();
  const auto mine = static_cast<size_t>(rank);
  Sharers found;
  for (size_t r = 0; r < infos.size(); ++r) {
    if (!infos[r].host_access || infos[r].host != infos[mine].host) continue;
    ++found.all;
    if (cores[r] == cores[mine]) ++found.bound;
  }
  return found;
}

Result<std::shared_ptr<const Introduction>> Introductions::read(
    uint64_t communicator, const std::vector<std::vector<uint8_t>>& encoded) {
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    // Drop entries of communicators that are gone. Few are alive at a time, so the walk is short.
    std::erase_if(entries_, [](const auto& one) { return one.second.expired(); });
    auto& slot = entries_[communicator];
    entry = slot.lock();
    if (entry == nullptr) {
      entry = std::make_shared<Entry>();
      slot = entry;
    }
  }
  std::lock_guard lock(entry->mutex);
  if (!entry->made) {
    HETCCL_ASSIGN(entry->made, make(encoded, traits_));
  }
  return std::shared_ptr<const Introduction>(entry, &*entry->made);
}

}  // namespace hetccl::comm
