#include "net/crowd.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

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

Crowd::Admission::Admission(Admission&& other) noexcept
    : crowd_(std::exchange(other.crowd_, nullptr)), name_(other.name_), source_(other.source_) {}

Crowd::Admission& Crowd::Admission::operator=(Admission&& other) noexcept {
  std::swap(crowd_, other.crowd_);
  std::swap(name_, other.name_);
  std::swap(source_, other.source_);
  const Admission given_back = std::move(other);
  return *this;
}

Crowd::Admission::~Admission() {
  if (crowd_) crowd_->remove(name_, source_);
}

Crowd::Admission Crowd::add(uint64_t name, uint64_t source) {
  Admission admission(*this, name, source);  // undoes a partial insertion
  all_.insert(name);
  by_source_[source].insert(name);
  return admission;
}

void Crowd::remove(uint64_t name, uint64_t source) {
  all_.erase(name);
  const auto found = by_source_.find(source);
  if (found == by_source_.end()) return;
  found->second.erase(name);
  if (found->second.empty()) by_source_.erase(found);
}

std::optional<uint64_t> Crowd::next_to_drop() const {
  if (all_.empty()) return std::nullopt;
  const auto most = std::max_element(
      by_source_.begin(), by_source_.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  return *(most->second.size() > share_ ? most->second : all_).begin();
}

}  // namespace hetccl::net
