#include "nccl-tuner/launcher.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace hetccl::nccl_tuner {
namespace {

constexpr const char* kVariables[][2] = {
    {"RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

std::optional<int> number_of(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  int number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<JobRank> job_rank() {
  for (const auto& [rank_variable, size_variable] : kVariables) {
    const auto rank = number_of(rank_variable), n_ranks = number_of(size_variable);
    if (rank && n_ranks && *rank >= 0 && *rank < *n_ranks) return JobRank{*rank, *n_ranks};
  }
  return std::nullopt;
}

}  // namespace hetccl::nccl_tuner
