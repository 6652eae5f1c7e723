#include "base/size_limit.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/shared_memory.h"

namespace hetccl {
namespace {

bool names_the_limit(const Status& status) {
  return status.code() == ErrorCode::SystemError &&
         status.message().find("may have 1048576 bytes: raise its limit (ulimit -f)") !=
             std::string::npos;
}

// Runs in a process with the limit and the signal's default effect, which kills it. Returns 0 on
// success.
int grow_beyond_the_limit(const std::string& path) {
  signal(SIGXFSZ, SIG_DFL);
  const rlimit limit{1 << 20, 1 << 20};
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
  if (!names_the_limit(SharedMemory::create(8 << 20).status())) return 2;
  if (!names_the_limit(replace_file(path, std::string(2 << 20, 'x')))) return 3;
  if (!SharedMemory::create(4096).ok() || !replace_file(path, "x").ok()) return 4;
  sigset_t mask, pending;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  sigpending(&pending);
  return sigismember(&mask, SIGXFSZ) == 1 || sigismember(&pending, SIGXFSZ) == 1 ? 5 : 0;
}

TEST_CASE("more than ulimit -f allows is an error that names it, not the end of the process") {
  char folder[] = "/tmp/hetccl-limit-XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/file";
  const pid_t child = fork();
  if (child == 0) _exit(grow_beyond_the_limit(path));
  int state = -1;
  REQUIRE(waitpid(child, &state, 0) == child);
  CHECK(WIFEXITED(state));
  CHECK(WEXITSTATUS(state) == 0);
  const auto files = std::filesystem::directory_iterator(folder);
  CHECK(std::distance(begin(files), end(files)) == 1);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hetccl
