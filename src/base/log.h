// Levelled log to stderr: "hetccl [rank 3] warn: text", "hetccl [rank 3 of pipeline] ...". One
// write per line, one line per call: control characters are escaped (printable.h). Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hetccl {

enum class LogLevel { Error, Warn, Info, Debug };

/// Parses "error", "warn", "info" or "debug" in any case: the values of HETCCL_DEBUG.
std::optional<LogLevel> parse_log_level(std::string_view text);

/// A component's log: its level, and the rank (-1: none yet) and communicator name (may be empty)
/// in its lines. Each user has a copy.
struct Log {
  LogLevel level = LogLevel::Warn;
  int rank = -1;
  std::string name{};

  [[gnu::format(printf, 2, 3)]] void error(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void warn(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void info(const char* format, ...) const;
  [[gnu::format(printf, 2, 3)]] void debug(const char* format, ...) const;
};

}  // namespace hetccl
