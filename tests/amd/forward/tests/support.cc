#include "support.h"

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace test {

Stub::Stub(const char* variable) : handle_(dlopen(std::getenv(variable), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  std::fprintf(stderr, "%s must name the stub: %s\n", variable, dlerror());
  std::abort();
}

void* Stub::symbol(const char* name) const {
  return dlsym(handle_, name);
}

std::string Stub::take() const {
  std::vector<char> text(1 << 20);
  reinterpret_cast<void (*)(char*, std::size_t)>(symbol("stub_take_log"))(text.data(), text.size());
  return text.data();
}

std::string Stub::last() const {
  std::string log = take();
  if (!log.empty()) log.pop_back();
  const std::size_t newline = log.rfind('\n');
  return newline == std::string::npos ? log : log.substr(newline + 1);
}

void Stub::set(const char* name, int result) const {
  reinterpret_cast<void (*)(const char*, int)>(symbol("stub_set_result"))(name, result);
}

const Stub& cuda() {
  static const Stub stub("FORWARD_CUDA");
  return stub;
}

const Stub& nvrtc() {
  static const Stub stub("FORWARD_NVRTC");
  return stub;
}

const Stub& nccl() {
  static const Stub stub("FORWARD_NCCL");
  return stub;
}

int run_in_child(void (*body)()) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace test
