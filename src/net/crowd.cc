#include "net/crowd.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

namespace hetccl::net {

uint64_t source_of(const SocketAddress& address) {
  constexpr size_t kIpAt = 4;
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  std::array<uint8_t, SocketAddress::kEncodedBytes> bytes;
  address.encode(bytes.data());
  const uint8_t* ip = bytes.data() + kIpAt;
  const bool mapped = std::equal(kMapped.begin(), kMapped.end(), ip);
  uint64_t source = 0;
  std::memcpy(&source, mapped ? ip + kMapped.size() : ip, mapped ? 4 : sizeof source);
  return source;
}

std::optional<uint64_t> Crowd::next_to_drop() const {
  if (members_.empty()) return std::nullopt;
  std::unordered_map<uint64_t, size_t> places;
  for (const Member& member : members_) ++places[member.source];
  const auto most =
      std::max_element(places.begin(), places.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most->second <= share_) return members_.front().name;
  const auto oldest = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.source == most->first;
  });
  return oldest->name;
}

}  // namespace hetccl::net
