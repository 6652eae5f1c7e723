#include "tuner/job.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <utility>

#include "bootstrap/bootstrap.h"
#include "fake/patience.h"

namespace hetccl::nccl_tuner {
namespace {

using enum Tactic::Algorithm;
using enum Tactic::Protocol;

constexpr size_t kAhead = 20;  // calls that a rank may be ahead of others, as with streams

uint32_t written(const Chosen& chosen) {
  return static_cast<uint32_t>((chosen.algorithm + 1) << 16U | (chosen.protocol + 1) << 8U |
                               chosen.channels);
}

// Kills and collects a child of this process; others than children have no such number.
void end(pid_t pid) {
  if (pid <= 0) return;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace

// The ring with the simple protocol is best, most so with 8 channels.
double cost_of(int function, const Chosen& chosen) {
  const double own = function == kAllReduce ? 160 : 120;
  if (chosen.algorithm != kRing || chosen.protocol != kSimple)
    return chosen.protocol == kLl128 ? own : own * 1.3;
  if (chosen.channels == 0) return own * 0.9;
  return own * 0.4 * (1 + 0.3 * std::abs(std::log2(chosen.channels / 8.0)));
}

Chosen chosen_of(uint32_t written) {
  return {static_cast<int>(written >> 16U) - 1, static_cast<int>(written >> 8U & 255U) - 1,
          static_cast<int>(written & 255U)};
}

Job::Job(JobOptions options) : options_(std::move(options)) {
  void* shared =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) std::abort();
  board_ = new (shared) Board();
  const std::string id = start_coordinator();
  for (size_t rank = 0; rank < kJobRanks; ++rank) {
    std::fflush(nullptr);
    const pid_t pid = fork();
    if (pid < 0) std::abort();
    if (pid == 0) {
      run_rank(rank, id);
      _exit(0);
    }
    ranks_.push_back(pid);
  }
}

Job::~Job() {
  for (const pid_t pid : ranks_) end(pid);
  end(coordinator_);
  munmap(board_, sizeof(Board));
}

void Job::kill_coordinator() {
  end(std::exchange(coordinator_, -1));
}

std::string Job::start_coordinator() {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::fflush(nullptr);
  coordinator_ = fork();
  if (coordinator_ < 0) std::abort();
  if (coordinator_ == 0) {
    alarm(fake::kAlarm);
    Config config;
    config.socket_ifname = "=lo";
    config.liveness_ms = fake::patient_ms(1000);
    auto service = bootstrap::Service::create(config, Log{LogLevel::Error}).value();
    const auto id = service->unique_id();
    if (!id.ok()) _exit(2);
    std::string hex;
    for (const uint8_t byte : id.value()) hex += format("%02x", byte);
    if (write(ends[1], hex.data(), hex.size()) != static_cast<ssize_t>(hex.size())) _exit(3);
    for (;;) pause();
  }
  std::string id(256, '0');
  if (read(ends[0], id.data(), id.size()) != static_cast<ssize_t>(id.size())) std::abort();
  close(ends[0]);
  close(ends[1]);
  return id;
}

void Job::run_rank(size_t rank, const std::string& id) {
  alarm(fake::kAlarm);
  std::map<std::string, std::string> environment = {
      {"RANK", std::to_string(rank)},
      {"WORLD_SIZE", std::to_string(kJobRanks)},
      {"HETCCL_TUNER_ID", id},
      {"HETCCL_SOCKET_IFNAME", "=lo"},
      {"HETCCL_LIVENESS_MS", std::to_string(fake::patient_ms(1000))},
      {"HETCCL_TUNE_BUDGET", options_.budget},
      {"HETCCL_TUNE_FILE", options_.tune_file},
      {"HETCCL_DEBUG", "error"}};
  for (const auto& [name, value] : options_.environment(rank)) environment[name] = value;
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  const FakeNccl nccl(options_.version);
  void* context = nccl.init(4711, kJobRanks, 1);
  board_->ready[rank] = true;
  std::mt19937_64 random(options_.seed * 10 + rank);
  std::uniform_real_distribution<double> spread(0, 0.4);
  for (size_t call = 0; call < options_.n_calls; ++call) {
    options_.before(rank, call);
    const int function = function_of(call);
    const auto from = std::chrono::steady_clock::now();
    const Chosen chosen = nccl.call(context, function, function == kAllReduce ? kMiB : 3 * kMiB);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(
                        std::chrono::steady_clock::now() - from)
                        .count();
    if (us > board_->longest_us[rank]) board_->longest_us[rank] = us;
    board_->chosen[rank][call] = written(chosen);
    board_->called[rank] = call + 1;
    usleep(static_cast<unsigned>(cost_of(function, chosen) * (0.8 + spread(random))));
    if (random() % 500 == 0) usleep(static_cast<unsigned>(random() % 5'000));
    for (size_t other = 0; other < kJobRanks; ++other)
      while (!board_->dead[other] && board_->called[other] + kAhead < call) usleep(30);
  }
  nccl.destroy(context);
}

std::vector<size_t> Job::finish() {
  std::vector<size_t> failed;
  for (size_t left = kJobRanks; left > 0;) {
    usleep(1'000);
    for (size_t rank = 0; rank < kJobRanks; ++rank) {
      int status = 0;
      if (ranks_[rank] <= 0 || waitpid(ranks_[rank], &status, WNOHANG) != ranks_[rank]) continue;
      ranks_[rank] = -1;
      board_->dead[rank] = true;
      --left;
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) failed.push_back(rank);
    }
  }
  return failed;
}

size_t Job::n_different() const {
  size_t different = 0;
  for (size_t call = 0; call < options_.n_calls; ++call) {
    uint32_t first = 0;
    for (size_t rank = 0; rank < kJobRanks; ++rank) {
      if (board_->called[rank] <= call) continue;
      const uint32_t mine = board_->chosen[rank][call];
      if (first != 0 && mine != first) {
        ++different;
        break;
      }
      first = mine;
    }
  }
  return different;
}

}  // namespace hetccl::nccl_tuner
