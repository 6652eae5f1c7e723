// A rank of hetccl for the programs of `make bench`. RANK, WORLD_SIZE and MEET, a file in which
// rank 0 leaves the unique id, come from the environment.
#pragma once

#include <hetccl/hetccl.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "timing.h"

namespace bench {

/// Ends the program where a call fails.
inline void check(hetcclResult_t result, const char* what) {
  if (result == hetcclSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, hetcclGetLastError(nullptr));
  std::exit(1);
}

class HetcclRanks {
 public:
  HetcclRanks() : rank_(number("RANK")), size_(number("WORLD_SIZE")) {
    hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
    config.device = "host";
    check(hetcclCommInitRankConfig(&comm_, size_, meet(), rank_, &config),
          "hetcclCommInitRankConfig");
  }
  ~HetcclRanks() { hetcclCommDestroy(comm_); }
  HetcclRanks(const HetcclRanks&) = delete;
  HetcclRanks& operator=(const HetcclRanks&) = delete;
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] hetcclComm_t comm() const { return comm_; }
  void barrier() { check(hetcclBarrier(comm_, nullptr), "hetcclBarrier"); }
  void all_reduce(const float* in, float* out, size_t count) {
    check(hetcclAllReduce(in, out, count, hetcclFloat32, hetcclSum, comm_, nullptr),
          "hetcclAllReduce");
  }
  /// With the other one of two ranks.
  void exchange(const float* in, float* out, size_t count) {
    check(hetcclGroupStart(), "hetcclGroupStart");
    check(hetcclSend(in, count, hetcclFloat32, 1 - rank_, comm_, nullptr), "hetcclSend");
    check(hetcclRecv(out, count, hetcclFloat32, 1 - rank_, comm_, nullptr), "hetcclRecv");
    check(hetcclGroupEnd(), "hetcclGroupEnd");
  }
  void slowest(double* values, size_t count) {
    check(hetcclAllReduce(values, values, count, hetcclFloat64, hetcclMax, comm_, nullptr),
          "hetcclAllReduce");
  }

 private:
  static const char* variable(const char* name) {
    const char* value = std::getenv(name);
    if (value != nullptr) return value;
    std::fprintf(stderr, "%s is not set\n", name);
    std::exit(2);
  }
  static int number(const char* name) { return std::atoi(variable(name)); }

  [[nodiscard]] hetcclUniqueId meet() const {
    const std::string path = variable("MEET");
    hetcclUniqueId id{};
    if (rank_ == 0) {
      check(hetcclGetUniqueId(&id), "hetcclGetUniqueId");
      std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
      std::filesystem::rename(path + ".new", path);
      return id;
    }
    while (!std::ifstream(path, std::ios::binary).read(id.internal, sizeof id.internal)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return id;
  }

  int rank_, size_;
  hetcclComm_t comm_ = nullptr;
};

}  // namespace bench
