#include "transport/ncclnet/plugin_log.h"

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace hetccl::transport::ncclnet {
namespace {

constexpr size_t kMostOfLine = 1024;

std::atomic<LogLevel>& level_of_plugins() {
  static std::atomic<LogLevel> level{LogLevel::Warn};
  return level;
}

LogLevel level_of(int level) {
  if (level == abi::kLogWarn) return LogLevel::Warn;
  return level == abi::kLogInfo || level == abi::kLogVersion ? LogLevel::Info : LogLevel::Debug;
}

}  // namespace

void set_plugin_log(const Log& log) {
  level_of_plugins().store(log.level);
}

// NOLINTBEGIN(google-runtime-int,cert-dcl50-cpp): the interface has these types
void log_of_plugin(int level, unsigned long /*subsystems*/, const char* /*file*/, int /*line*/,
                   const char* format, ...) {
  const Log log{level_of_plugins().load()};
  // Skips formatting if nobody reads the line: plug-ins have passed arguments that do not fit the
  // format.
  if (format == nullptr || level == abi::kLogNone || level_of(level) > log.level) return;
  std::array<char, kMostOfLine> text{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  switch (level_of(level)) {
    case LogLevel::Warn:
      return log.warn("net plug-in: %s", text.data());
    case LogLevel::Info:
      return log.info("net plug-in: %s", text.data());
    default:
      return log.debug("net plug-in: %s", text.data());
  }
}
// NOLINTEND(google-runtime-int,cert-dcl50-cpp)

}  // namespace hetccl::transport::ncclnet
