#include "comm/context.h"

#include <algorithm>

namespace hetccl::comm {

using std::chrono::milliseconds;

namespace {

Config settings_of(Config config, const CommunicatorOptions& options) {
  config.wire = options.wire.value_or(config.wire);
  config.wire_gather = options.wire_gather.value_or(config.wire_gather);
  config.wire_inside = options.wire_inside.value_or(config.wire_inside);
  return config;
}

milliseconds init_time(const Config& config, const CommunicatorOptions& options) {
  const int64_t ms = options.init_timeout_ms > 0 ? options.init_timeout_ms : config.init_timeout_ms;
  return milliseconds(options.init_limit_ms > 0 ? std::min(ms, options.init_limit_ms) : ms);
}

}  // namespace

Context::Context(Runtime& runtime_used, CommunicatorOptions given, std::unique_ptr<Cancel> ends)
    : runtime(runtime_used),
      options(std::move(given)),
      config(settings_of(runtime.config(), options)),
      log(runtime.log()),
      cancel(std::move(ends)),
      init_deadline(engine().clock().now() + init_time(config, options)) {
  log.name = options.name;
}

int64_t Context::init_left_ms() const {
  const auto left = init_deadline - engine().clock().now();
  return std::max<int64_t>(std::chrono::duration_cast<milliseconds>(left).count(), 1);
}

}  // namespace hetccl::comm
