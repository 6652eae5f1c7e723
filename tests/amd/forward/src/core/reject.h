// Counts values that AMD's headers do not define.
#pragma once

namespace forward {

/// Counts one rejected value and prints it once per function, argument and value. Thread-safe.
void count_rejection(const char* function, const char* argument, unsigned long long value);

/// Counts one rejected text, such as a compiler's option, and prints it once. Thread-safe.
void count_rejected_text(const char* function, const char* text);

/// Prints `message` once per function, for calls that AMD accepts and this library cannot imitate.
void explain_once(const char* function, const char* message);

/// Returns the number of rejections in this shared object. Thread-safe.
[[nodiscard]] unsigned long rejections();

}  // namespace forward
