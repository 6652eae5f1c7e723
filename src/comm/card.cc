#include "comm/card.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

namespace hetccl::comm {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxCardBytes = 64 << 10;
constexpr size_t kMaxAddressBytes = 4096;
constexpr uint64_t kMaxVersion = 1'000'000'000;

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string version_text(int code) {
  return format("%d.%d.%d", code / 10000, code / 100 % 100, code % 100);
}

}  // namespace

std::vector<uint8_t> encode(const Card& card) {
  Json json = {{"addresses", Json::object()}};
  json["version"] = card.version;
  json["agreed"] = card.agreed;
  json["info"] = topology::to_json(card.info);
  for (const auto& [name, address] : card.addresses) json["addresses"][name] = address;
  // What is not UTF-8 is replaced: nothing throws.
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return {text.begin(), text.end()};
}

Result<Card> decode(const std::vector<uint8_t>& bytes) {
  const auto malformed = [] {
    return error(Code::RemoteError, "a rank sent a malformed description of itself");
  };
  if (bytes.size() > kMaxCardBytes) return malformed();
  // Text, because its parser does not recurse: a binary form nested deeply would end the stack.
  const Json json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("version") || !json["version"].is_number_unsigned() ||
      json["version"].get<uint64_t>() > kMaxVersion || !json.contains("agreed") ||
      !json["agreed"].is_string() || !json.contains("info") || !json["info"].is_string() ||
      !json.contains("addresses") || !json["addresses"].is_object()) {
    return malformed();
  }
  Card card;
  card.version = json["version"].get<int>();
  card.agreed = json["agreed"].get<std::string>();
  HETCCL_ASSIGN(card.info,
                topology::rank_info_from_json(json["info"].get_ref<const std::string&>()));
  for (const auto& [name, address] : json["addresses"].items()) {
    if (!address.is_array() || address.size() > kMaxAddressBytes) return malformed();
    for (const auto& byte : address) {
      if (!byte.is_number_unsigned() || byte.get<uint64_t>() > 255) return malformed();
      card.addresses[name].push_back(byte.get<uint8_t>());
    }
  }
  return card;
}

Status check_agreement(const std::vector<Card>& cards) {
  const Card& first = cards.front();
  const auto expected = lines_of(first.agreed);
  for (size_t rank = 1; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    if (card.version != first.version) {
      return error(Code::InvalidUsage,
                   "rank 0 runs hetccl %s, rank %zu hetccl %s: install one version everywhere",
                   version_text(first.version).c_str(), rank, version_text(card.version).c_str());
    }
    if (card.agreed == first.agreed) continue;
    const auto lines = lines_of(card.agreed);
    for (size_t i = 0; i < std::max(expected.size(), lines.size()); ++i) {
      const char* ours = i < expected.size() ? expected[i].c_str() : "no such setting";
      const char* theirs = i < lines.size() ? lines[i].c_str() : "no such setting";
      if (std::strcmp(ours, theirs) == 0) continue;
      return error(Code::InvalidUsage, "rank 0 has %s, rank %zu has %s: set it equally everywhere",
                   ours, rank, theirs);
    }
  }
  return {};
}

}  // namespace hetccl::comm
