// The 128 bytes that a launcher passes on.
#include <cstring>

#include "bootstrap/unique_id.h"
#include "fuzz/fuzz.h"

namespace hetccl {

using namespace bootstrap;

std::vector<fuzz::Bytes> fuzz::seeds() {
  net::SocketAddress v4;
  v4.storage.ss_family = AF_INET;
  net::SocketAddress v6;
  v6.storage.ss_family = AF_INET6;
  Invitation invitation{0x1122334455667788, net::Secret(net::kSecretBytes, 9), {v4}};
  std::vector<Bytes> seeds;
  for (int i = 0; i < 2; ++i) {
    const UniqueId id = encode(invitation);
    seeds.emplace_back(id.begin(), id.end());
    invitation.addresses = {v6, v4, v6.with_port(4711), v4.with_port(1)};
  }
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  UniqueId id{};
  if (size > 0) std::memcpy(id.data(), data, std::min(size, id.size()));
  const auto invitation = decode(id);
  if (!invitation.ok()) {
    fuzz::require(!invitation.status().message().empty(), "a refusal says why");
    return 0;
  }
  const Invitation& read = invitation.value();
  fuzz::require(!read.addresses.empty() && read.addresses.size() <= kMaxAddresses,
                "an id names 1 to 4 addresses");
  fuzz::require(read.secret.size() == net::kSecretBytes, "an id has a whole secret");
  for (const auto& address : read.addresses)
    fuzz::require(!address.text().empty(), "an address can be printed");
  const auto again = decode(encode(read));
  fuzz::require(again.ok() && encode(again.value()) == encode(read), "an id survives the trip");
  return 0;
}
