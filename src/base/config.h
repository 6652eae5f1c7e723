// The only table of settings: name, type, default, a line of help. It parses the environment and
// prints the docs; nothing else in hetccl calls getenv.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hetccl {

inline constexpr int64_t kDayMs = 86'400'000;
/// The minimum of HETCCL_LIVENESS_MS.
inline constexpr int64_t kLeastLivenessMs = 100;

/// The rights of this process: its user's own, or also others' (setuid), which the user's
/// environment must not control.
enum class Rights { Own, Others };

/// Every setting, parsed. Immutable after `from_environment`. The table in config.cc names the
/// variables.
struct Config {
  std::string log_level = "warn";  ///< HETCCL_DEBUG: error, warn, info, debug
  std::string host_id;             ///< HETCCL_HOSTID: overrides the host's identity
  std::string cluster;             ///< HETCCL_CLUSTER: a label that splits clusters further
  bool cluster_join = false;       ///< HETCCL_CLUSTER_JOIN: one cluster for each label
  std::string socket_ifname;  ///< HETCCL_SOCKET_IFNAME: NCCL's syntax: "eth,ib", "^docker", "=eth0"
  std::string card_mbps;      ///< HETCCL_CARD_MBPS: "eth0=25000,eth1=10000"
  std::string socket_family;  ///< HETCCL_SOCKET_FAMILY: "", "inet", "inet6"
  std::string port_range;     ///< HETCCL_PORT_RANGE: "first-last"; "" lets the system choose
  int64_t init_timeout_ms = 60'000;  ///< HETCCL_INIT_TIMEOUT_MS: until all ranks have joined
  int64_t timeout_ms = 600'000;      ///< HETCCL_TIMEOUT_MS: for one collective
  int64_t liveness_ms = 5'000;    ///< HETCCL_LIVENESS_MS: silence after which a rank counts as lost
  int64_t tcp_streams = 0;        ///< HETCCL_TCP_STREAMS: sockets per channel; 0 lets hetccl choose
  int64_t tcp_threads = -1;       ///< HETCCL_TCP_THREADS: threads that move streams; -1 lets hetccl
                                  ///< choose
  int64_t host_threads = 0;       ///< HETCCL_HOST_THREADS: 0 lets hetccl choose
  int64_t slice_bytes = 0;        ///< HETCCL_SLICE_BYTES: 0 lets hetccl choose
  int64_t depth = 0;              ///< HETCCL_DEPTH: slices in flight; 0 lets hetccl choose
  bool deterministic = false;     ///< HETCCL_DETERMINISTIC: nothing is chosen by measurement
  bool encrypt = false;           ///< HETCCL_ENCRYPT: TLS on all TCP connections
  bool library_messages = true;   ///< HETCCL_LIBRARY_MESSAGES: between GPUs of one cluster
  bool launches_wait = false;     ///< not hetccl's: CUDA_ or HIP_LAUNCH_BLOCKING is set
  bool vendor_cleartext = false;  ///< HETCCL_ALLOW_VENDOR_CLEARTEXT: between hosts, despite encrypt
  bool mpi_cleartext = false;     ///< HETCCL_ALLOW_MPI_CLEARTEXT: between hosts, despite encrypt
  std::string secret_file;        ///< HETCCL_SECRET_FILE: mixed into the key of every connection
  std::string dump;               ///< HETCCL_DUMP: file for the last operations before a failure
  std::string tune = "off";       ///< HETCCL_TUNE: off, online, step or frozen
  std::string tune_bits = "any";  ///< HETCCL_TUNE_BITS: any, or keep the order of sums
  int64_t tune_budget = 2;        ///< HETCCL_TUNE_BUDGET: percent of the time that trials may lose
  std::string tune_file;          ///< HETCCL_TUNE_FILE: results of earlier jobs
  std::string tuner_id;           ///< HETCCL_TUNER_ID: of the coordinator of plain NCCL's tuners
  std::string trace;              ///< HETCCL_TRACE: file for steps and their times
  std::string wire;               ///< HETCCL_WIRE: encoding of sums of floats between clusters
  std::string wire_gather;        ///< HETCCL_WIRE_GATHER: encoding of all-gathers
  bool wire_inside = false;       ///< HETCCL_WIRE_INSIDE: also in a single cluster
  int64_t wire_least_bytes = 65'536;  ///< HETCCL_WIRE_LEAST_BYTES: shorter data is not encoded
  int64_t wire_below_mbps = 0;        ///< HETCCL_WIRE_BELOW_MBPS: rate of the slowest link; 0: any
  int64_t wire_seed = 0;              ///< HETCCL_WIRE_SEED: for stochastic encodings
  std::string transport;              ///< HETCCL_TRANSPORT: between hosts; "" lets hetccl choose
  std::string rdma_devices;           ///< HETCCL_RDMA_DEVICES: as HETCCL_SOCKET_IFNAME; "": all
  std::string net_plugin;             ///< HETCCL_NET_PLUGIN: a path or a name; "": none is loaded
  int64_t rdma_gid_index = -1;        ///< HETCCL_RDMA_GID_INDEX: -1 lets hetccl choose
  bool rdma_gpu = true;               ///< HETCCL_RDMA_GPU: NICs access GPU memory
  int64_t rdma_pkey = 0;              ///< HETCCL_RDMA_PKEY: a partition; 0: the port's first
  int64_t rdma_service_level = 0;     ///< HETCCL_RDMA_SERVICE_LEVEL
  int64_t rdma_traffic_class = 0;     ///< HETCCL_RDMA_TRAFFIC_CLASS: for RoCE
  int64_t rdma_timeout = 17;          ///< HETCCL_RDMA_TIMEOUT: 4.096 us times 2 to this power
  int64_t rdma_retries = 7;           ///< HETCCL_RDMA_RETRIES
  int64_t rdma_queue_pairs = 1;       ///< HETCCL_RDMA_QUEUE_PAIRS: of two ranks
  bool transport_shm = true;          ///< HETCCL_SHM: 0 makes clusters of one host talk over TCP
  int64_t gpu_blocks = 8;             ///< HETCCL_GPU_BLOCKS: per kernel; 0: as many as the GPU runs
  std::string kernel_cache;           ///< HETCCL_KERNEL_CACHE: folder of compiled kernels
  bool mpi = true;                    ///< HETCCL_MPI: 0 leaves every call to the MPI library
  std::string mpi_file;               ///< HETCCL_MPI_FILE: the calls that hetccl serves
  bool mpi_summary = false;           ///< HETCCL_MPI_SUMMARY: printed at MPI_Finalize
  std::string hip_library;            ///< HETCCL_HIP_LIBRARY: a path; "" searches
  std::string hiprtc_library;         ///< HETCCL_HIPRTC_LIBRARY: a path; "" searches
  std::string rccl_library;           ///< HETCCL_RCCL_LIBRARY: a path, or "none"; "" searches
  std::string runtime;        ///< HETCCL_RUNTIME: whose hetcclRuntimeLoad loads; "" searches
  std::string nccl_library;   ///< HETCCL_NCCL_LIBRARY: a path, or "none"; "" searches
  std::string adaptors;       ///< HETCCL_ADAPTORS: paths, separated by colons
  std::string nvrtc_library;  ///< HETCCL_NVRTC_LIBRARY: a path; "" searches

  /// Returns whether the environment sets this setting, even to its default.
  [[nodiscard]] bool is_given(std::string_view name) const;

  /// Parses `environment` ("NAME=value" strings). A bad value returns InvalidArgument naming the
  /// variable and what it takes. With another user's rights, settings that name libraries, or files
  /// to write, are ignored with a warning.
  static Result<Config> parse(std::span<const std::string> environment,
                              Rights rights = Rights::Own);
  /// Parses this process's environment, with its rights. The caller logs the warnings once it knows
  /// its rank.
  static Result<Config> from_environment();
  /// Returns a line for each HETCCL_* variable that is no setting, with the nearest setting's name,
  /// and for each that is ignored. Skips HETCCL_TEST_*, which hetccl's own tests use.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Logs `warnings`: as warnings on rank 0, or in a process without a rank (-1). Other ranks
  /// usually have the same environment, so they only log them with HETCCL_DEBUG=info.
  void warn(int rank) const;
  /// Returns every setting's value as text, by variable name (for `hetccl info`).
  [[nodiscard]] std::map<std::string, std::string> describe() const;
  /// Returns the settings that plans depend on, one line "NAME=value" each. All ranks must agree on
  /// them.
  [[nodiscard]] std::string agreed() const;

 private:
  std::vector<std::string_view> given_;  // names from the table
  std::vector<std::string> warnings_;
};

/// Returns one of MPICH's own settings ("MPIR_CVAR_..."), or "": the MPI interposer follows some of
/// them, too.
std::string mpich_setting(const char* name);

/// Returns whether HETCCL_ENCRYPT is set to something other than 0, or HETCCL_SECRET_FILE to
/// anything. Counts values that `Config::parse` refuses, so that a caller that ignores the error
/// still knows that protection was asked for.
bool asks_for_protection();

/// Returns the user's cache folder: $XDG_CACHE_HOME, or .cache in $HOME; empty if neither is an
/// absolute path.
std::string user_cache_folder();

/// This process's rank in its job.
struct JobRank {
  int rank = 0, n_ranks = 1;
};
/// Returns what torchrun, Open MPI, MPICH or Slurm put into the environment, for code without a
/// communicator; nothing if none of them did.
std::optional<JobRank> job_rank();

/// One row of the table, for the documentation and `hetccl info`.
struct ConfigEntry {
  std::string_view name, type, default_value, help;
};
std::span<const ConfigEntry> config_entries();

}  // namespace hetccl
