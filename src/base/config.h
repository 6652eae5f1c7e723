// The one table of settings: name, type, default, a line of help. It parses the environment and
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
/// Of HETCCL_LIVENESS_MS.
inline constexpr int64_t kLeastLivenessMs = 100;

/// By whose rights this process runs: its user's, or also others' (setuid), whom its user's
/// environment must not command.
enum class Rights { Own, Others };

/// Every setting, parsed. Immutable after `from_environment`; the table in config.cc names the
/// variables.
struct Config {
  std::string log_level = "warn";  ///< HETCCL_DEBUG: error, warn, info, debug
  std::string host_id;             ///< HETCCL_HOSTID: overrides the host's identity
  std::string cluster;             ///< HETCCL_CLUSTER: label that splits clusters further
  bool cluster_join = false;       ///< HETCCL_CLUSTER_JOIN: one cluster for each label
  std::string socket_ifname;  ///< HETCCL_SOCKET_IFNAME: NCCL's syntax: "eth,ib", "^docker", "=eth0"
  std::string card_mbps;      ///< HETCCL_CARD_MBPS: "eth0=25000,eth1=10000"
  std::string socket_family;  ///< HETCCL_SOCKET_FAMILY: "", "inet", "inet6"
  std::string port_range;     ///< HETCCL_PORT_RANGE: "first-last"; "" lets the system choose
  int64_t init_timeout_ms = 60'000;  ///< HETCCL_INIT_TIMEOUT_MS: for all ranks to come
  int64_t timeout_ms = 600'000;      ///< HETCCL_TIMEOUT_MS: for one collective
  int64_t liveness_ms = 5'000;    ///< HETCCL_LIVENESS_MS: silence after which a rank counts as lost
  int64_t tcp_streams = 0;        ///< HETCCL_TCP_STREAMS: sockets per channel; 0 lets hetccl choose
  int64_t tcp_threads = -1;       ///< HETCCL_TCP_THREADS: that move streams; -1 lets hetccl choose
  int64_t host_threads = 0;       ///< HETCCL_HOST_THREADS: 0 lets hetccl choose
  int64_t slice_bytes = 0;        ///< HETCCL_SLICE_BYTES: 0 lets hetccl choose
  int64_t depth = 0;              ///< HETCCL_DEPTH: slices in flight; 0 lets hetccl choose
  bool deterministic = false;     ///< HETCCL_DETERMINISTIC: nothing is chosen by measurement
  bool encrypt = false;           ///< HETCCL_ENCRYPT: TLS on all TCP connections
  bool library_messages = true;   ///< HETCCL_LIBRARY_MESSAGES: of GPUs of one cluster
  bool launches_wait = false;     ///< no setting of hetccl: CUDA_ or HIP_LAUNCH_BLOCKING is set
  bool vendor_cleartext = false;  ///< HETCCL_ALLOW_VENDOR_CLEARTEXT: between hosts, though encrypt
  bool mpi_cleartext = false;     ///< HETCCL_ALLOW_MPI_CLEARTEXT: between hosts, though encrypt
  std::string secret_file;        ///< HETCCL_SECRET_FILE: mixed into the key of every connection
  std::string dump;               ///< HETCCL_DUMP: where a failure's last operations are written
  std::string tune = "off";       ///< HETCCL_TUNE: off, online, step or frozen
  std::string tune_bits = "any";  ///< HETCCL_TUNE_BITS: any, or keep the order of sums
  int64_t tune_budget = 2;        ///< HETCCL_TUNE_BUDGET: percent of the time that trials may lose
  std::string tune_file;          ///< HETCCL_TUNE_FILE: what earlier jobs have learnt
  std::string tuner_id;           ///< HETCCL_TUNER_ID: of the coordinator of plain NCCL's tuners
  std::string trace;              ///< HETCCL_TRACE: where steps and their times are written
  std::string wire;               ///< HETCCL_WIRE: how sums of floats are encoded between clusters
  std::string wire_gather;        ///< HETCCL_WIRE_GATHER: the same of all-gathers
  bool wire_inside = false;       ///< HETCCL_WIRE_INSIDE: in one cluster, too
  int64_t wire_least_bytes = 65'536;  ///< HETCCL_WIRE_LEAST_BYTES: shorter ones are not
  int64_t wire_below_mbps = 0;        ///< HETCCL_WIRE_BELOW_MBPS: of the slowest link; 0: any
  int64_t wire_seed = 0;              ///< HETCCL_WIRE_SEED: of stochastic encodings
  std::string transport;              ///< HETCCL_TRANSPORT: between hosts; "" lets hetccl choose
  std::string rdma_devices;           ///< HETCCL_RDMA_DEVICES: as HETCCL_SOCKET_IFNAME; "": all
  std::string net_plugin;             ///< HETCCL_NET_PLUGIN: a path or a name; "": none is loaded
  int64_t rdma_gid_index = -1;        ///< HETCCL_RDMA_GID_INDEX: -1 lets hetccl choose
  bool rdma_gpu = true;               ///< HETCCL_RDMA_GPU: cards read and write memory of GPUs
  int64_t rdma_pkey = 0;              ///< HETCCL_RDMA_PKEY: a partition; 0: the first of the port
  int64_t rdma_service_level = 0;     ///< HETCCL_RDMA_SERVICE_LEVEL
  int64_t rdma_traffic_class = 0;     ///< HETCCL_RDMA_TRAFFIC_CLASS: of RoCE
  int64_t rdma_timeout = 17;          ///< HETCCL_RDMA_TIMEOUT: 4.096 us times two to this
  int64_t rdma_retries = 7;           ///< HETCCL_RDMA_RETRIES
  int64_t rdma_queue_pairs = 1;       ///< HETCCL_RDMA_QUEUE_PAIRS: of two ranks
  bool transport_shm = true;          ///< HETCCL_SHM: 0 makes clusters of one host talk over TCP
  int64_t gpu_blocks = 8;      ///< HETCCL_GPU_BLOCKS: of a kernel; 0: as many as the card runs
  std::string kernel_cache;    ///< HETCCL_KERNEL_CACHE: folder of compiled kernels
  bool mpi = true;             ///< HETCCL_MPI: 0 leaves every call to the MPI
  std::string mpi_file;        ///< HETCCL_MPI_FILE: which calls hetccl serves
  bool mpi_summary = false;    ///< HETCCL_MPI_SUMMARY: printed at MPI_Finalize
  std::string hip_library;     ///< HETCCL_HIP_LIBRARY: a path; "" searches
  std::string hiprtc_library;  ///< HETCCL_HIPRTC_LIBRARY: a path; "" searches
  std::string rccl_library;    ///< HETCCL_RCCL_LIBRARY: a path, or "none"; "" searches
  std::string runtime;         ///< HETCCL_RUNTIME: whose hetcclRuntimeLoad loads; "" searches
  std::string nccl_library;    ///< HETCCL_NCCL_LIBRARY: a path, or "none"; "" searches
  std::string adaptors;        ///< HETCCL_ADAPTORS: paths, with colons between them
  std::string nvrtc_library;   ///< HETCCL_NVRTC_LIBRARY: a path; "" searches

  /// Whether the environment has a value for the setting of this name, be it the default's.
  [[nodiscard]] bool is_given(std::string_view name) const;

  /// Parses `environment` ("NAME=value" strings). A bad value is InvalidArgument naming the
  /// variable and what it takes. Under another user's rights what names libraries, or files to
  /// write, is ignored with a warning.
  static Result<Config> parse(std::span<const std::string> environment,
                              Rights rights = Rights::Own);
  /// `parse` of this process's environment, by its rights. The caller logs the warnings, once it
  /// knows its rank.
  static Result<Config> from_environment();
  /// A line for each HETCCL_* variable that is no setting, with the nearest one that is, and for
  /// each that is ignored. HETCCL_TEST_* are hetccl's own tests' variables, and none of them.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  /// Logs `warnings`: rank 0, or a process without a rank (-1), as warnings. Other ranks usually
  /// have the same environment, so they log them with HETCCL_DEBUG=info only.
  void warn(int rank) const;
  /// The value of every setting as text, by variable name (for `hetccl info`).
  [[nodiscard]] std::map<std::string, std::string> describe() const;
  /// A digest of those settings on which plans depend: all ranks must agree. One line "NAME=value"
  /// each.
  [[nodiscard]] std::string agreed() const;

 private:
  std::vector<std::string_view> given_;  // names in the table
  std::vector<std::string> warnings_;
};

/// The value of one of MPICH's own settings ("MPIR_CVAR_..."), or "": the MPI interposer takes some
/// of them, too.
std::string mpich_setting(const char* name);

/// Whether HETCCL_ENCRYPT is set to something other than 0, or HETCCL_SECRET_FILE to anything: also
/// to values that `Config::parse` refuses, so that who goes on without a setting knows what it was.
bool asks_for_protection();

/// The user's folder for what can be made again: $XDG_CACHE_HOME, or .cache in $HOME; empty when
/// neither is an absolute path.
std::string user_cache_folder();

/// Which rank of its job this process is.
struct JobRank {
  int rank = 0, n_ranks = 1;
};
/// As torchrun, Open MPI, MPICH and Slurm say in the environment, for code that no communicator
/// tells; nothing where none of them does.
std::optional<JobRank> job_rank();

/// One row of the table, for the documentation and `hetccl info`.
struct ConfigEntry {
  std::string_view name, type, default_value, help;
};
std::span<const ConfigEntry> config_entries();

}  // namespace hetccl
