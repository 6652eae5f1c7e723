// Runs tests that need a process in which nothing is loaded yet.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace hetccl::fake {

/// Runs the skipped test case of that name, which has no comma, in a new process of this program,
/// whose loader searches `folder` first. Returns its exit status, 0 where the case passed, or 1000
/// and the number of the signal that ended it.
inline int run_alone(const std::string& test_case, const std::string& folder) {
  const char* const before = std::getenv("LD_LIBRARY_PATH");
  const std::string folders = before == nullptr ? folder : folder + ":" + before;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string filter = "--test-case=" + test_case;
  const pid_t child = fork();
  if (child == 0) {
    setenv("LD_LIBRARY_PATH", folders.c_str(), 1);
    execl(program.c_str(), program.c_str(), "--no-skip", "--duration=false", filter.c_str(),
          nullptr);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

}  // namespace hetccl::fake
