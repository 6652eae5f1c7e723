// Serialises descriptions of endpoints: metadata, which users carry to other endpoints, and the
// greeting of two endpoints that connect.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "bootstrap/bootstrap.h"
#include "onesided/protocol.h"
#include "transport/transport.h"

namespace hetccl::onesided {

inline constexpr size_t kMaxName = 128;
inline constexpr size_t kMaxMetadata = size_t{1} << 20;

/// Contains the door's secret: everybody who reads it may connect, unless HETCCL_SECRET_FILE is
/// set.
struct Metadata {
  struct Region {
    uint64_t id = 0, bytes = 0;
    uint32_t access = 0;
    std::string label;
  };
  std::string name;
  bootstrap::UniqueId door{};
  std::vector<Region> regions;
};

/// JSON on one line.
std::string encode(const Metadata& metadata);
/// Parses a bounded, checked text. InvalidArgument if it is malformed or of another version.
Result<Metadata> metadata_from(std::string_view text);

struct Greeting {
  int protocol = 0;
  std::string name;
  std::string host;       ///< host identity
  std::string host_name;  ///< for messages
  int64_t pid = 0;
  bool shares_memory = false;
  uint64_t window_bytes = 0;  ///< window memory that it can share with an endpoint on its host
  std::map<std::string, transport::Address> addresses;  ///< by transport name
};

Bytes encode(const Greeting& greeting);
/// Parses bytes from another process; bounded and checked. RemoteError if they are malformed or of
/// another version.
Result<Greeting> greeting_from(const Bytes& bytes);

}  // namespace hetccl::onesided
