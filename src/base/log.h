// Levelled log to stderr: "hetccl [rank 3] warn: text". One write per line, and one
// line per call: control characters are escaped (printable.h). Thread-safe.
#pragma once

#include <optional>
#include <string_view>

namespace hetccl {

enum class LogLevel { Error, Warn, Info, Debug };

/// "error", "warn", "info" or "debug" in any case: the values of HETCCL_DEBUG.
std::optional<LogLevel> parse_log_level(std::string_view text);

/// Where a component's lines go: its level and the rank they carry (-1: none yet). Copied, owned by
/// its user.
struct Log {
  LogLevel level = LogLevel::Warn;
  int rank = -1;

  [[gnu::format(printf, 2, 3)]] void error(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void warn(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void info(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void debug(const char* format, ...) const;
};

}  // namespace hetccl
