// Captures the stderr of a piece of a test, above all the log.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace hetccl::fake {

/// While it lives stderr goes into memory.
class CapturedStderr {
 public:
  CapturedStderr() : memory_(memfd_create("stderr", MFD_CLOEXEC)), saved_(dup(STDERR_FILENO)) {
    fcntl(memory_, F_SETFL, O_APPEND);  // several threads write
    dup2(memory_, STDERR_FILENO);
  }
  ~CapturedStderr() {
    dup2(saved_, STDERR_FILENO);
    close(saved_);
    close(memory_);
  }
  CapturedStderr(const CapturedStderr&) = delete;
  CapturedStderr& operator=(const CapturedStderr&) = delete;
  /// Text captured so far.
  [[nodiscard]] std::string text() const {
    struct stat status{};
    fstat(memory_, &status);
    std::string text(static_cast<size_t>(status.st_size), '\0');
    const ssize_t length = pread(memory_, text.data(), text.size(), 0);
    text.resize(length > 0 ? static_cast<size_t>(length) : 0);
    return text;
  }

 private:
  const int memory_, saved_;
};

/// Runs `body` with stderr going into memory. Returns its output.
inline std::string stderr_of(const std::function<void()>& body) {
  const CapturedStderr captured;
  body();
  return captured.text();
}

}  // namespace hetccl::fake
