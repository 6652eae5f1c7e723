// Helper that the tests share: access to the stubs' logs.
#pragma once

#include <string>

namespace test {

/// One stub library, which the library under test loaded from the path in `variable`.
class Stub {
 public:
  explicit Stub(const char* variable);

  /// Returns the recorded calls since the last take, one a line, and clears them.
  [[nodiscard]] std::string take() const;

  /// Returns the last recorded call, without the newline; clears the log.
  [[nodiscard]] std::string last() const;

  /// Makes later calls of `name` return `result`.
  void set(const char* name, int result) const;

  [[nodiscard]] void* symbol(const char* name) const;

 private:
  void* handle_;
};

[[nodiscard]] const Stub& cuda();
[[nodiscard]] const Stub& nvrtc();
[[nodiscard]] const Stub& nccl();

/// Runs `body` in a child process; returns its exit status, or 128 plus the signal that ended it.
[[nodiscard]] int run_in_child(void (*body)());

}  // namespace test
