#include "mpi/protection.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "base/status.h"

namespace hetccl::mpi {
namespace {

constexpr const char* kSetOnAll =
    "set it on every rank (-x NAME with Open MPI, -genv NAME VALUE with MPICH and Intel MPI)";

// Returns the first rank whose settings have `flag` equal to `value`, or ranks.size().
size_t find_rank(const std::vector<Settings>& ranks, uint8_t Settings::* flag, bool value) {
  const auto found = std::find_if(ranks.begin(), ranks.end(),
                                  [&](const Settings& rank) { return (rank.*flag != 0) == value; });
  return static_cast<size_t>(found - ranks.begin());
}

std::string find_difference(const std::vector<Settings>& ranks, uint8_t Settings::* flag,
                            const char* setting) {
  const size_t with = find_rank(ranks, flag, true), without = find_rank(ranks, flag, false);
  if (with == ranks.size() || without == ranks.size()) return "";
  return format("%s is set on rank %zu, but not on rank %zu: %s", setting, with, without,
                kSetOnAll);
}

size_t count_hosts(const std::vector<Settings>& ranks) {
  std::set<uint64_t> hosts;
  for (const Settings& rank : ranks) hosts.insert(rank.host);
  return hosts.size();
}

}  // namespace

std::string find_refusal(const std::vector<Settings>& ranks) {
  const size_t none = ranks.size();
  if (find_rank(ranks, &Settings::asks, true) == none) return "";
  if (const size_t rank = find_rank(ranks, &Settings::is_readable, false); rank != none) {
    return format(
        "rank %zu cannot read its settings, as its log says, and the job asks for "
        "HETCCL_ENCRYPT or HETCCL_SECRET_FILE: it ends rather than run without them",
        rank);
  }
  if (find_rank(ranks, &Settings::serves, true) == none) return "";
  for (const auto& [flag, setting] : {std::pair{&Settings::encrypts, "HETCCL_ENCRYPT=1"},
                                      std::pair{&Settings::has_secret_file, "HETCCL_SECRET_FILE"}})
    if (std::string text = find_difference(ranks, flag, setting); !text.empty()) return text;
  const size_t hosts = count_hosts(ranks);
  if (ranks.front().encrypts == 0 || hosts == 1) return "";
  if (find_rank(ranks, &Settings::allows_cleartext, false) != none) {
    return format(
        "HETCCL_ENCRYPT=1, and the ranks are on %zu hosts: hetccl encrypts its own "
        "connections, and cannot encrypt what the MPI carries (messages, short "
        "collectives, and hetccl's unique ids). If the MPI's network is trusted or the "
        "MPI encrypts it, set HETCCL_ALLOW_MPI_CLEARTEXT=1 and HETCCL_SECRET_FILE on "
        "every rank; else run without libhetccl_mpi.so",
        hosts);
  }
  if (ranks.front().has_secret_file == 0) {
    return "HETCCL_ENCRYPT=1 with HETCCL_ALLOW_MPI_CLEARTEXT=1 needs HETCCL_SECRET_FILE on every "
           "rank: the MPI carries hetccl's unique ids in clear, and who reads one could join the "
           "job (docs/security.md)";
  }
  return "";
}

}  // namespace hetccl::mpi
