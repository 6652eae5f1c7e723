// NCCL's side of the tuner plug-in, as src/plugin/tuner.cc and topoGetAlgoInfo of NCCL 2.28.9 are
// written: loads the library, makes cost tables, and takes the entry that costs least. A fake.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ccl/nccl/tuner_abi.h"

namespace hetccl::nccl_tuner {

using Table = std::array<std::array<float, Tactic::kProtocols>, Tactic::kAlgorithms>;

/// NCCL's choice for a call; channels 0: as many as NCCL likes.
struct Chosen {
  int algorithm = -1, protocol = -1, channels = 0;
  bool operator==(const Chosen&) const = default;
};

inline constexpr size_t kMiB = size_t{1} << 20U;

/// NCCL's own choice is kOwn.
Table usual_table();
inline const Chosen kOwn{Tactic::kTree, Tactic::kLl128, 0};

class FakeNccl {
 public:
  /// Looks up only `version` of the interface, 2 to 5.
  explicit FakeNccl(int version);
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  [[nodiscard]] void* find(const char* symbol) const;
  /// A communicator's context.
  void* init(uint64_t communicator, size_t n_ranks, size_t n_nodes) const;
  [[nodiscard]] Chosen call(void* context, int function, size_t bytes,
                            const Table& table = usual_table()) const;
  void destroy(void* context) const;

  /// Returns the lines that the plug-in has logged since the last call, in this process.
  static std::vector<std::string> take_log();

 private:
  void* library_;
  int version_;
  TunerV5 tuner_{};  // v2 to v4 in the members that they share
  const TunerV2* v2_ = nullptr;
  const TunerV3* v3_ = nullptr;
  const TunerV4* v4_ = nullptr;
};

}  // namespace hetccl::nccl_tuner
