// 1,024 ranks as threads of this process: rendezvous, cards, topology, plans of every collective on
// every rank; what that costs each rank is printed and bounded. Sockets are real, on loopback.
// HETCCL_SCALE_RANKS gives another number, HETCCL_ENCRYPT=1 encrypts.
#include <dirent.h>
#include <doctest/doctest.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>

#include "bootstrap/bootstrap.h"
#include "comm/introduction.h"
#include "fake/patience.h"
#include "fake/thread.h"
#include "plan/planner.h"

namespace hetccl {
namespace {

using Seconds = std::chrono::duration<double>;

int n_ranks() {
  const char* text = std::getenv("HETCCL_SCALE_RANKS");
  return text != nullptr ? std::atoi(text) : 1024;
}

constexpr int kRanksPerHost = 8;
constexpr int kClusters = 4;  // kinds of accelerators

// Describes a rank of a large job: hosts of eight, four kinds of accelerators, two NICs.
comm::Card card(int rank, const Config& config) {
  comm::Card card;
  card.version = 100;
  card.agreed = config.agreed();
  topology::RankInfo& info = card.info;
  const int host = rank / kRanksPerHost;
  const int kind = rank * kClusters / n_ranks();
  info.rank = rank;
  info.host = format("4a1de2f0-6d0c-4b7e-9d0f-%012d/net:4026531840/pid:4026531836/uid:0", host);
  info.host_name = format("node%04d.cluster.example", host);
  info.pid = 100'000 + rank;
  info.vendor = kind % 2 == 0 ? "cuda" : "hip";
  info.reach.architectures = kind % 2 == 0;
  info.model = kind % 2 == 0 ? "NVIDIA H100 80GB HBM3" : "AMD Instinct MI300X";
  info.architecture = kind % 2 == 0 ? "sm_90" : "gfx942";
  info.bus_id = format("0000:%02x:00.0", rank % kRanksPerHost);
  info.library = kind % 2 == 0 ? "nccl" : "rccl";
  info.library_version = "2.30.7";
  info.label = format("%d", kind);
  info.nics = {{"mlx5_0", format("10.0.%d.%d", host / 256, host % 256), 400'000, rank % 2},
               {"mlx5_1", format("10.1.%d.%d", host / 256, host % 256), 400'000, 1 - rank % 2}};
  card.addresses["tcp"] = transport::Address(43, static_cast<uint8_t>(rank));
  card.addresses["shm"] = transport::Address(33, static_cast<uint8_t>(rank));
  return card;
}

int open_descriptors() {
  int count = 0;
  if (DIR* folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
  }
  return count;
}

double resident_mib(const char* field) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == field && status >> kib) return kib / 1024;
  }
  return 0;
}

// Bytes and messages that all TCP sockets of this process have sent.
struct Traffic {
  uint64_t bytes = 0, messages = 0;
};

Traffic traffic() {
  Traffic sum;
  for (int fd = 0, last = ::sysconf(_SC_OPEN_MAX) > 0 ? 100'000 : 0; fd < last; ++fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
    sum.bytes += info.tcpi_bytes_acked;
    sum.messages += info.tcpi_data_segs_out;
  }
  return sum;
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Prints the time of each phase.
class Phases {
 public:
  void end(const char* name) {
    const auto now = std::chrono::steady_clock::now();
    const double cpu = cpu_seconds();
    std::printf("%-28s %7.2f s %7.2f s CPU %8.0f MiB\n", name, Seconds(now - begin_).count(),
                cpu - cpu_, resident_mib("VmRSS:"));
    begin_ = now;
    cpu_ = cpu;
  }
  [[nodiscard]] double total() const {
    return Seconds(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point begin_ = start_;
  double cpu_ = cpu_seconds();
};

constexpr Collective kCollectives[] = {Collective::AllReduce, Collective::ReduceScatter,
                                       Collective::AllGather, Collective::Broadcast,
                                       Collective::Reduce,    Collective::Barrier};

// Steps of all plans of `rank`, or -1.
int64_t plan_all(int rank, const topology::Topology& topology) {
  int64_t steps = 0;
  for (const Collective collective : kCollectives) {
    const auto plan = plan::plan(rank, {collective, 0, false}, topology);
    if (!plan.ok()) return -1;
    steps += static_cast<int64_t>(plan.value().steps.size());
  }
  return steps + static_cast<int64_t>(plan::peers(rank, topology).size());
}

TEST_CASE("a thousand ranks meet, agree and plan") {
  const int n = n_ranks();
  std::printf("%d ranks\n", n);
  Config config;
  config.socket_ifname = "=lo";
  config.encrypt = std::getenv("HETCCL_ENCRYPT") != nullptr;
  config.liveness_ms = fake::kHangMs;  // one machine plays them all
  auto service = bootstrap::Service::create(config, Log{}).value();
  comm::Introductions introductions;
  const int before = open_descriptors();
  Phases phases;
  const auto id = service->unique_id().value();

  std::barrier together(n + 1);
  std::atomic<int> wrong{0};
  std::atomic<int64_t> steps{0};
  std::vector<fake::Thread> threads;
  for (int rank = 0; rank < n; ++rank) {
    threads.emplace_back([&, rank] {
      bootstrap::JoinOptions join;
      join.rank = rank;
      join.n_ranks = n;
      join.description = format("host node%04d, pid %d", rank / kRanksPerHost, 100'000 + rank);
      join.timeout_ms = 120'000;
      auto session = service->join(id, std::move(join));
      if (!session.ok()) {
        if (wrong++ == 0) MESSAGE(session.status().message());
        together.arrive_and_drop();
        return;
      }
      together.arrive_and_wait();
      Result<std::shared_ptr<const comm::Introduction>> all = Status();
      {
        const auto cards = session.value()->all_gather(encode(card(rank, config)), 120'000);
        if (cards.ok()) {
          together.arrive_and_wait();
          all = introductions.read(session.value()->communicator(), cards.value());
        }
      }
      if (!all.ok()) {
        if (wrong++ == 0) MESSAGE(all.status().message());
        together.arrive_and_drop();
        return;
      }
      together.arrive_and_wait();
      const int64_t mine = plan_all(rank, all.value()->topology);
      if (mine < 0) ++wrong;
      steps += mine;
      together.arrive_and_wait();
      if (!session.value()->barrier(120'000).ok()) ++wrong;
      together.arrive_and_wait();
      together.arrive_and_wait();  // the sockets are counted
    });
  }
  for (const char* phase : {"join", "gather cards", "parse, topology", "plan", "barrier"}) {
    together.arrive_and_wait();
    phases.end(phase);
  }
  const Traffic sent = traffic();
  const int descriptors = open_descriptors() - before;
  const double total = phases.total();
  together.arrive_and_wait();
  for (fake::Thread& thread : threads) thread.join();
  const auto each = static_cast<double>(n);
  const double peak = resident_mib("VmHWM:");
  std::printf("in all %.2f s, at most %.0f MiB\n", total, peak);
  std::printf(
      "a rank: %.1f KiB and %.1f segments over TCP, %.1f descriptors (both ends), "
      "%.2f MiB, %.0f steps of plans\n",
      static_cast<double>(sent.bytes) / 1024 / each, static_cast<double>(sent.messages) / each,
      descriptors / each, peak / each, static_cast<double>(steps) / each);
  CHECK(wrong == 0);
  // A rank is told of all others once, in few words, over its one connection.
  CHECK(static_cast<double>(sent.bytes) / each < 8'192 + 48 * each);
  CHECK(static_cast<double>(sent.messages) / each < 20 + each / 20);
  CHECK(descriptors / each < 2.1);
  CHECK(peak < 8 * each);
  CHECK(cpu_seconds() < 20 * fake::patience() * std::max(1.0, each / 1024));
}

}  // namespace
}  // namespace hetccl
