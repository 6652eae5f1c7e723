// What a piece of a test writes to stderr, the log above all.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace hetccl::fake {

/// Runs `body` with stderr going into memory, and returns what came.
inline std::string stderr_of(const std::function<void()>& body) {
  const int memory = memfd_create("stderr", MFD_CLOEXEC);
  const int saved = dup(STDERR_FILENO);
  dup2(memory, STDERR_FILENO);
  body();
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text(static_cast<size_t>(lseek(memory, 0, SEEK_END)), '\0');
  const ssize_t length = pread(memory, text.data(), text.size(), 0);
  close(memory);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

}  // namespace hetccl::fake
