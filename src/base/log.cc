#include "base/log.h"

#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "base/printable.h"

namespace hetccl {

namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"error", "warn", "info", "debug"};

// Bounded, because text may come from a peer; on the stack, because it may report a lack of memory.
constexpr size_t kLineBytes = 4096;

size_t bounded(int printed, size_t room) {
  return printed < 0 ? 0 : std::min(static_cast<size_t>(printed), room - 1);
}

void write_line(const Log& log, LogLevel level, const char* format, va_list arguments) {
  if (level > log.level) return;
  char line[kLineBytes], text[kLineBytes];
  const char* word = kLevelNames[static_cast<size_t>(level)].data();
  const char* of = log.name.empty() ? "" : " of ";
  size_t length = bounded(
      log.rank >= 0 ? std::snprintf(line, sizeof line, "hetccl [rank %d%s%s] %s: ", log.rank, of,
                                    log.name.c_str(), word)
                    : std::snprintf(line, sizeof line, "hetccl %s: ", word),
      sizeof line);
  const size_t given = bounded(std::vsnprintf(text, sizeof text, format, arguments), sizeof text);
  length += print_into(line + length, sizeof line - 1 - length, {text, given});
  line[length++] = '\n';
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, length);
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    const std::string_view name = kLevelNames[i];
    if (name.size() == text.size() && strncasecmp(name.data(), text.data(), name.size()) == 0) {
      return static_cast<LogLevel>(i);
    }
  }
  return std::nullopt;
}

void Log::error(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  write_line(*this, LogLevel::Error, format, arguments);
  va_end(arguments);
}

void Log::warn(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  write_line(*this, LogLevel::Warn, format, arguments);
  va_end(arguments);
}

void Log::info(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  write_line(*this, LogLevel::Info, format, arguments);
  va_end(arguments);
}

void Log::debug(const char* format, ...) const {
  va_list arguments;
  va_start(arguments, format);
  write_line(*this, LogLevel::Debug, format, arguments);
  va_end(arguments);
}

}  // namespace hetccl
