#include "process/forked_ranks.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "fake/patience.h"

namespace hetccl::process {
namespace {

using Pipe = std::array<int, 2>;

Pipe make_pipe() {
  Pipe ends{};
  if (pipe(ends.data()) != 0) std::abort();
  return ends;
}

bool readable(int fd, std::chrono::milliseconds limit) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, static_cast<int>(limit.count())) > 0;
}

void write_all(int fd, const void* data, size_t bytes) {
  if (write(fd, data, bytes) != static_cast<ssize_t>(bytes)) _exit(3);
}

// Rank 0 makes the id and hands it to the others.
void share_id(Rank& rank, const std::vector<Pipe>& id_pipes) {
  if (rank.rank == 0) {
    if (hetcclGetUniqueId(&rank.id) != hetcclSuccess) _exit(4);
    for (size_t r = 1; r < id_pipes.size(); ++r) {
      write_all(id_pipes[r][1], &rank.id, sizeof rank.id);
    }
    return;
  }
  const int fd = id_pipes[static_cast<size_t>(rank.rank)][0];
  if (read(fd, &rank.id, sizeof rank.id) != sizeof rank.id) _exit(5);
}

}  // namespace

ForkedRanks::ForkedRanks(int n, const Body& body) {
  std::vector<Pipe> id_pipes;
  for (int r = 0; r < n; ++r) id_pipes.push_back(make_pipe());
  for (int r = 0; r < n; ++r) {
    const Pipe ready = make_pipe(), report = make_pipe();
    std::fflush(nullptr);  // or a rank that exits prints the buffered text again
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(fake::kAlarm);  // no rank outlives a broken test
      Rank rank{r, n, {}, [ready] { write_all(ready[1], "r", 1); }};
      share_id(rank, id_pipes);
      const Report text = body(rank);
      write_all(report[1], text.data(), text.size());
      _exit(0);
    }
    close(ready[1]);
    close(report[1]);
    children_.push_back({pid, ready[0], report[0]});
  }
  for (const auto& ends : id_pipes) close(ends[0]), close(ends[1]);
}

ForkedRanks::~ForkedRanks() {
  for (auto& child : children_) {
    if (child.pid > 0) {
      kill(child.pid, SIGKILL);
      waitpid(child.pid, nullptr, 0);
    }
    close(child.ready_fd);
    close(child.report_fd);
  }
}

bool ForkedRanks::wait_ready() {
  for (auto& child : children_) {
    char byte = 0;
    if (!readable(child.ready_fd, fake::kHang)) return false;
    if (read(child.ready_fd, &byte, 1) != 1) return false;
  }
  return true;
}

void ForkedRanks::send_signal(int rank, int signal) {
  kill(children_[static_cast<size_t>(rank)].pid, signal);
}

Report ForkedRanks::report(int rank, std::chrono::milliseconds limit) {
  const int fd = children_[static_cast<size_t>(rank)].report_fd;
  Report text;
  char buffer[4096];
  while (readable(fd, limit)) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<size_t>(n));
  }
  return text;
}

bool ForkedRanks::exited(int rank) {
  auto& child = children_[static_cast<size_t>(rank)];
  const auto end = std::chrono::steady_clock::now() + fake::kHang;
  while (std::chrono::steady_clock::now() < end) {
    int status = 0;
    if (waitpid(child.pid, &status, WNOHANG) == child.pid) {
      child.pid = -1;
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    usleep(10'000);
  }
  return false;
}

hetcclComm_t join(const Rank& rank, const char* label) {
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  config.cluster = label;
  hetcclComm_t comm = nullptr;
  if (hetcclCommInitRankConfig(&comm, rank.n_ranks, rank.id, rank.rank, &config) != hetcclSuccess) {
    std::fprintf(stderr, "rank %d: %s\n", rank.rank, hetcclGetLastError(nullptr));
    _exit(6);
  }
  return comm;
}

void wait_for_failure(hetcclComm_t comm) {
  const auto end = std::chrono::steady_clock::now() + fake::kHang;
  hetcclResult_t result = hetcclSuccess;
  while (result == hetcclSuccess && std::chrono::steady_clock::now() < end) {
    usleep(10'000);
    if (hetcclCommGetAsyncError(comm, &result) != hetcclSuccess) return;
  }
}

}  // namespace hetccl::process
