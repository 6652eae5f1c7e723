#include "capi/options.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/encoding.h"
#include "base/printable.h"
#include "capi/process.h"

namespace hetccl::capi {
namespace {

// Size of the first release's struct: callers compiled against it pass no more.
constexpr size_t kFirstConfigBytes = offsetof(hetcclConfig_t, blocking);
constexpr size_t kLongestName = 64;

}  // namespace

Result<comm::CommunicatorOptions> options_of(const hetcclConfig_t& given) {
  if (given.magic != HETCCL_CONFIG_MAGIC || given.size < kFirstConfigBytes) {
    return error(ErrorCode::InvalidArgument, "config was not made by HETCCL_CONFIG_INITIALIZER");
  }
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  std::memcpy(&config, &given, std::min(given.size, sizeof config));
  const std::pair<const char*, int64_t> times[] = {{"timeout_ms", config.timeout_ms},
                                                   {"init_timeout_ms", config.init_timeout_ms},
                                                   {"init_limit_ms", config.init_limit_ms}};
  for (const auto& [name, time] : times) {
    if (time < 0) return error(ErrorCode::InvalidArgument, "config.%s is negative", name);
  }
  if (config.blocking != 0 && config.blocking != 1) {
    return error(ErrorCode::InvalidArgument, "config.blocking is %d: it must be 0 or 1",
                 config.blocking);
  }
  if (config.wire_inside < -1 || config.wire_inside > 1) {
    return error(ErrorCode::InvalidArgument, "config.wire_inside is %d: it must be -1, 0 or 1",
                 config.wire_inside);
  }
  const std::pair<const char*, const char*> encodings[] = {{"wire", config.wire},
                                                           {"wire_gather", config.wire_gather}};
  for (const auto& [name, encoding] : encodings) {
    if (encoding == nullptr) continue;
    HETCCL_TRY(parse_encoding(encoding).status().with(std::string("config.") + name));
  }
  if (config.min_ctas < 0 || config.max_ctas < 0 ||
      (config.max_ctas > 0 && config.min_ctas > config.max_ctas)) {
    return error(ErrorCode::InvalidArgument,
                 "config.min_ctas is %d and max_ctas %d: they must be 0, or from 1 to max_ctas",
                 config.min_ctas, config.max_ctas);
  }
  const auto text = [](const char* value) { return value == nullptr ? "" : value; };
  comm::CommunicatorOptions options;
  options.device = text(config.device);
  options.cluster = text(config.cluster);
  options.host_id = text(config.host_id);
  options.timeout_ms = std::min(config.timeout_ms, kLongestTimeoutMs);
  options.init_timeout_ms = std::min(config.init_timeout_ms, kLongestTimeoutMs);
  options.init_limit_ms = std::min(config.init_limit_ms, kLongestTimeoutMs);
  options.blocking = config.blocking == 1;
  if (config.wire != nullptr) options.wire = config.wire;
  if (config.wire_gather != nullptr) options.wire_gather = config.wire_gather;
  if (config.wire_inside >= 0) options.wire_inside = config.wire_inside == 1;
  options.name = printable(text(config.name), kLongestName);
  options.blocks = {config.min_ctas, config.max_ctas};
  return options;
}

}  // namespace hetccl::capi
