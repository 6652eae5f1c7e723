// Decides whether a job may run with its security settings. The MPI carries data in clear text: the
// calls that rules leave to it, messages, and the unique ids of hetccl's communicators. So
// HETCCL_ENCRYPT=1 protects nothing between hosts, unless the user says that the MPI's network is
// trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hetccl::mpi {

/// One rank's host and security settings, as it sends them to all other ranks.
struct Settings {
  uint64_t host = 0;             ///< a hash
  uint8_t serves = 1;            ///< HETCCL_MPI
  uint8_t is_readable = 1;       ///< no setting has a bad value
  uint8_t asks = 0;              ///< HETCCL_ENCRYPT or HETCCL_SECRET_FILE is set, even badly
  uint8_t encrypts = 0;          ///< HETCCL_ENCRYPT=1
  uint8_t allows_cleartext = 0;  ///< HETCCL_ALLOW_MPI_CLEARTEXT=1
  uint8_t has_secret_file = 0;   ///< HETCCL_SECRET_FILE
  uint8_t is_multithreaded = 0;  ///< MPI_THREAD_MULTIPLE; not a security setting
  uint8_t reserved = 0;
};

/// Returns why a job of these ranks must end in MPI_Init; empty if it may run. All ranks get the
/// same text. A job in which no rank lets hetccl serve may always run.
[[nodiscard]] std::string find_refusal(const std::vector<Settings>& ranks);

}  // namespace hetccl::mpi
