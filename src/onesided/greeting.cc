#include "onesided/greeting.h"

#include <sodium.h>

#include "base/json.h"
#include "base/printable.h"

namespace hetccl::onesided {

namespace {

constexpr size_t kMaxGreeting = size_t{64} << 10;
constexpr size_t kMaxAddress = 4096;

std::string hex_of(const uint8_t* data, size_t bytes) {
  std::string text(2 * bytes + 1, '\0');
  sodium_bin2hex(text.data(), text.size(), data, bytes);
  text.pop_back();
  return text;
}

bool read_hex(const std::string* text, uint8_t* out, size_t bytes) {
  size_t got = 0;
  return text != nullptr && text->size() == 2 * bytes &&
         sodium_hex2bin(out, bytes, text->data(), text->size(), nullptr, &got, nullptr) == 0 &&
         got == bytes;
}

bool read_text(const Json& json, std::string& out) {
  const std::string* text = json.text();
  if (text == nullptr) return false;
  out = printable(*text, kMaxName);
  return true;
}

Status other_version(ErrorCode code, int64_t protocol) {
  return error(code,
               "the other endpoint speaks version %lld of the protocol, this one %d: install one "
               "version of hetccl everywhere",
               static_cast<long long>(protocol), kProtocol);
}

bool read_region(const Json& json, Metadata::Region& region) {
  const auto id = json["id"].integer(1, INT64_MAX);
  const auto bytes = json["bytes"].integer(1, INT64_MAX);
  const auto access = json["access"].integer(0, UINT32_MAX);
  if (!id || !bytes || !access || !read_text(json["label"], region.label)) return false;
  region.id = static_cast<uint64_t>(*id);
  region.bytes = static_cast<uint64_t>(*bytes);
  region.access = static_cast<uint32_t>(*access);
  return true;
}

}  // namespace

std::string encode(const Metadata& metadata) {
  std::vector<Json> regions;
  for (const Metadata::Region& region : metadata.regions) {
    regions.push_back(Json{{"id", region.id},
                           {"bytes", region.bytes},
                           {"access", region.access},
                           {"label", region.label}});
  }
  return Json{{"hetccl_endpoint", kProtocol},
              {"name", metadata.name},
              {"door", hex_of(metadata.door.data(), metadata.door.size())},
              {"regions", std::move(regions)}}
      .dump();
}

Result<Metadata> metadata_from(std::string_view text) {
  HETCCL_ASSIGN(const Json json, Json::parse(text, "metadata", kMaxMetadata));
  const auto malformed = [] {
    return error(ErrorCode::InvalidArgument, "metadata is none of hetcclEndpointGetMetadata's");
  };
  const auto protocol = json["hetccl_endpoint"].integer(0, INT32_MAX);
  if (!protocol) return malformed();
  if (*protocol != kProtocol) return other_version(ErrorCode::InvalidArgument, *protocol);
  Metadata metadata;
  const auto* regions = json["regions"].elements();
  if (regions == nullptr || !read_text(json["name"], metadata.name) ||
      !read_hex(json["door"].text(), metadata.door.data(), metadata.door.size()))
    return malformed();
  for (const Json& region : *regions) {
    if (!read_region(region, metadata.regions.emplace_back())) return malformed();
  }
  return metadata;
}

Bytes encode(const Greeting& greeting) {
  std::vector<Json::Member> addresses;
  for (const auto& [name, address] : greeting.addresses) {
    addresses.push_back({name, hex_of(address.data(), address.size())});
  }
  const std::string text = Json{
      {"protocol", greeting.protocol},
      {"name", greeting.name},
      {"host", greeting.host},
      {"host_name", greeting.host_name},
      {"pid", greeting.pid},
      {"shares_memory", greeting.shares_memory},
      {"window_bytes", greeting.window_bytes},
      {"addresses",
       std::move(addresses)}}.dump();
  return {text.begin(), text.end()};
}

Result<Greeting> greeting_from(const Bytes& bytes) {
  const auto malformed = [] {
    return error(ErrorCode::RemoteError, "the other endpoint sent a malformed greeting");
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto parsed = Json::parse(text, "a greeting", kMaxGreeting);
  if (!parsed.ok()) return malformed();
  const Json& json = parsed.value();
  const auto protocol = json["protocol"].integer(0, INT32_MAX);
  if (!protocol) return malformed();
  if (*protocol != kProtocol) return other_version(ErrorCode::RemoteError, *protocol);
  Greeting greeting;
  const auto pid = json["pid"].integer(0, INT64_MAX);
  const auto shares = json["shares_memory"].boolean();
  const auto window = json["window_bytes"].integer(0, INT64_MAX);
  const std::string* host = json["host"].text();
  const auto* addresses = json["addresses"].members();
  if (!pid || !shares || !window || host == nullptr || addresses == nullptr ||
      !read_text(json["name"], greeting.name) || !read_text(json["host_name"], greeting.host_name))
    return malformed();
  greeting.protocol = static_cast<int>(*protocol);
  greeting.host = *host;
  greeting.pid = *pid;
  greeting.shares_memory = *shares;
  greeting.window_bytes = static_cast<uint64_t>(*window);
  for (const auto& [name, value] : *addresses) {
    const std::string* hex = value.text();
    if (hex == nullptr || hex->size() > 2 * kMaxAddress) return malformed();
    transport::Address address(hex->size() / 2);
    if (!read_hex(hex, address.data(), address.size())) return malformed();
    greeting.addresses[name] = std::move(address);
  }
  return greeting;
}

}  // namespace hetccl::onesided
