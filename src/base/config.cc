#include "base/config.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <climits>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <variant>

#include "base/config_text.h"
#include "base/cores.h"
#include "base/encoding.h"
#include "base/log.h"
#include "base/report_file.h"

namespace hetccl {

namespace {

constexpr std::string_view kPrefix = "HETCCL_";
constexpr std::string_view kTestPrefix = "HETCCL_TEST_";  // read by hetccl's own tests
constexpr size_t kMaxTextBytes = 1024;

enum class Agreement { PerRank, AllRanks };
// The meaning of a variable that is set but empty. Shells and launchers unset a variable that way.
// But protection must not vanish because another variable, from which it was set, is missing.
enum class Empty { AsUnset, Refused };
// The nature of a text. In a process with another user's rights (setuid), the person who starts it
// must not choose the code that it runs or the files that it writes. A secret is never shown.
enum class Nature { Plain, File, Secret };

struct IntegerRange {
  int64_t Config::* member;
  int64_t first, last;
};
struct Flag {
  bool Config::* member;
};
/// Refuses a text for which `accepts` is false; `takes` describes valid ones.
struct Text {
  std::string Config::* member;
  bool (*accepts)(std::string_view);
  std::string_view takes;
  Nature nature = Nature::Plain;
};

struct Row {
  ConfigEntry entry;
  std::variant<IntegerRange, Flag, Text> value;
  Agreement agreement = Agreement::PerRank;
  Empty empty = Empty::AsUnset;
};

constexpr const char* kEncodingsText =
    "int8, int4, e4m3 or e5m2, and perhaps :32, :64, :128, :256 or :512, and :stochastic";

constexpr std::string_view kPatternTakes =
    "a path of at most 1024 bytes; after % come r, p, c or %";

constexpr std::string_view kLibraryTakes =
    "a full path of at most 1024 bytes, or a name without a slash, which the loader finds";

constexpr std::array kRows = {
    Row{{"HETCCL_ADAPTORS", "text", "",
         "adaptors, as docs/adaptors.md says, which add devices, transports and collective "
         "libraries: paths, with colons between them; for host ranks, the library with the best "
         "score is used, hetccl's own if none scores higher"},
        Text{&Config::adaptors, is_library_list,
             "full paths of at most 1024 bytes together, or names without a slash", Nature::File}},
    Row{{"HETCCL_ALLOW_MPI_CLEARTEXT", "flag", "0",
         "with HETCCL_ENCRYPT=1 in MPI programs on several hosts, which end in MPI_Init without "
         "it: 1 says that the MPI's network is trusted, since hetccl encrypts nothing that the "
         "MPI carries; HETCCL_SECRET_FILE is needed, too (docs/mpi.md)"},
        Flag{&Config::mpi_cleartext}},
    Row{{"HETCCL_ALLOW_VENDOR_CLEARTEXT", "flag", "0",
         "with HETCCL_ENCRYPT=1: 1 lets vendors' libraries (NCCL) carry data between hosts, which "
         "they do not encrypt, and with HETCCL_TRANSPORT=verbs hetccl use RDMA, which cannot; 0 "
         "makes one cluster of each host's GPUs, and hetccl's encrypted connections join them"},
        Flag{&Config::vendor_cleartext},
        Agreement::AllRanks},
    Row{{"HETCCL_CARD_MBPS", "text", "",
         "Mbit/s of network cards where the driver states none, or a wrong one, as in virtual "
         "machines: \"eth0=25000,eth1=10000\""},
        Text{&Config::card_mbps, is_rate_list,
             "interfaces with their Mbit/s, eth0=25000,eth1=10000"}},
    Row{{"HETCCL_CLUSTER", "text", "", "label; ranks of different labels form different clusters"},
        Text{&Config::cluster, is_label, "at most 255 printable ASCII characters"}},
    Row{{"HETCCL_CLUSTER_JOIN", "flag", "0",
         "1: the ranks of one HETCCL_CLUSTER label form one cluster, though their GPUs differ in "
         "architecture or their libraries in version; vendors never share one. Ranks without a "
         "label are grouped as ever"},
        Flag{&Config::cluster_join},
        Agreement::AllRanks},
    Row{{"HETCCL_DEBUG", "choice", "warn", "what is logged to stderr: error, warn, info or debug"},
        Text{&Config::log_level, is_level, "one of error, warn, info, debug"}},
    Row{{"HETCCL_DEPTH", "integer", "0", "slices in flight in a collective; 0 lets hetccl choose"},
        IntegerRange{&Config::depth, 0, 64},
        Agreement::AllRanks},
    Row{{"HETCCL_DETERMINISTIC", "flag", "0",
         "1 ignores what is measured at init when it chooses plans: the same bits from run to run"},
        Flag{&Config::deterministic},
        Agreement::AllRanks},
    Row{{"HETCCL_DUMP", "text", "",
         "file to which a rank writes its last operations as JSON when a communicator fails; %r "
         "is the rank, %p the process id, %c the communicator's number in the process; empty: "
         "nothing is written (hetcclCommDump and Communicator.dump() work at any time). The file "
         "has mode 600 and replaces a regular file of that name; links, FIFOs and devices are "
         "refused"},
        Text{&Config::dump, is_report_pattern, kPatternTakes, Nature::File}},
    Row{{"HETCCL_ENCRYPT", "flag", "0",
         "1 encrypts all TCP connections, control and data (TLS 1.3); shared memory stays as it "
         "is, and vendors' libraries stay inside their hosts (HETCCL_ALLOW_VENDOR_CLEARTEXT)"},
        Flag{&Config::encrypt},
        Agreement::AllRanks,
        Empty::Refused},
    Row{{"HETCCL_GPU_BLOCKS", "integer", "8",
         "thread blocks that a reduction on a GPU may take from the user's kernels; 0: as many as "
         "the GPU runs at once"},
        IntegerRange{&Config::gpu_blocks, 0, 65'535}},
    Row{{"HETCCL_HIPRTC_LIBRARY", "text", "",
         "path of the libhiprtc that compiles kernels; empty: the process's own, else one beside "
         "the HIP runtime or by name"},
        Text{&Config::hiprtc_library, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_HIP_LIBRARY", "text", "",
         "path of the libamdhip64 to use; empty: the process's own, else one by name"},
        Text{&Config::hip_library, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_HOSTID", "text", "", "overrides the host's identity; equal on ranks of one host"},
        Text{&Config::host_id, is_label, "at most 255 printable ASCII characters"}},
    Row{{"HETCCL_HOST_THREADS", "integer", "0",
         "threads that copy and reduce large messages of a rank of the host, the progress "
         "engine's included; 0: its part of three quarters of the cores that it may use, at most "
         "8"},
        IntegerRange{&Config::host_threads, 0, kMaxHostThreads}},
    Row{{"HETCCL_INIT_TIMEOUT_MS", "integer", "60000",
         "milliseconds that all ranks have to join a communicator; in PyTorch the group's timeout "
         "holds where it is shorter"},
        IntegerRange{&Config::init_timeout_ms, 1, kDayMs}},
    Row{{"HETCCL_KERNEL_CACHE", "text", "",
         "folder of the GPU kernels that were compiled on this machine; empty: hetccl in "
         "$XDG_CACHE_HOME or ~/.cache"},
        Text{&Config::kernel_cache, is_path, "a path of at most 1024 bytes", Nature::File}},
    Row{{"HETCCL_LIBRARY_MESSAGES", "flag", "1",
         "0 keeps messages between GPUs of one cluster on hetccl's own channels; 1: the vendor's "
         "library carries them, once it has connected the two"},
        Flag{&Config::library_messages},
        Agreement::AllRanks},
    Row{{"HETCCL_LIVENESS_MS", "integer", "5000",
         "milliseconds of silence after which a rank counts as lost"},
        IntegerRange{&Config::liveness_ms, kLeastLivenessMs, kDayMs}},
    Row{{"HETCCL_MPI", "flag", "1",
         "0: libhetccl_mpi.so leaves every call to the MPI, and adds no message of its own"},
        Flag{&Config::mpi}},
    Row{{"HETCCL_MPI_FILE", "text", "",
         "file of rules, in the form of MPICH's tuning files, by which MPI calls are served "
         "(docs/mpi.md); rank 0 reads it for all; empty: MPICH's own settings, else hetccl's "
         "rules"},
        Text{&Config::mpi_file, is_path, "a path of at most 1024 bytes", Nature::File}},
    Row{{"HETCCL_MPI_SUMMARY", "flag", "0",
         "1: MPI_Finalize prints calls, bytes and time of each collective, and who served them"},
        Flag{&Config::mpi_summary}},
    Row{{"HETCCL_NCCL_LIBRARY", "text", "",
         "path of the libnccl to use; empty: the process's own, else libnccl.so.2; \"none\": no "
         "library, so every GPU of NVIDIA is a cluster of its own"},
        Text{&Config::nccl_library, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_NET_PLUGIN", "text", "",
         "NCCL's net plug-in that carries data between hosts, as NCCL_NET_PLUGIN names it: a "
         "path, or aws-ofi for libnccl-net-aws-ofi.so; empty: none"},
        Text{&Config::net_plugin, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_NVRTC_LIBRARY", "text", "",
         "path of the libnvrtc that compiles kernels; empty: the process's own, else one by name "
         "or beside the CUDA libraries that are loaded"},
        Text{&Config::nvrtc_library, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_PORT_RANGE", "text", "",
         "\"first-last\": the ports to listen on, two for each rank on a host (one more for RDMA, "
         "and for a net plug-in), of all its jobs together; empty lets the system choose"},
        Text{&Config::port_range, is_port_range, "first-last, both from 1 to 65535"}},
    Row{{"HETCCL_RCCL_LIBRARY", "text", "",
         "path of the librccl to use; empty: the process's own, else librccl.so.1; \"none\": no "
         "library, so every GPU of AMD is a cluster of its own"},
        Text{&Config::rccl_library, is_library, kLibraryTakes, Nature::File}},
    Row{{"HETCCL_RDMA_DEVICES", "text", "",
         "RDMA devices to use: prefixes \"mlx5,bnxt\", \"^irdma\" for all others, \"=mlx5_0\" "
         "exact; empty: all"},
        Text{&Config::rdma_devices, is_interface_list,
             "device names with commas, after ^ or = if wanted"}},
    Row{{"HETCCL_RDMA_GID_INDEX", "integer", "-1",
         "the GID that RDMA ports use; -1: of RoCE one of version 2 and IPv4 where there is one "
         "(hetccl info shows which), of InfiniBand the first"},
        IntegerRange{&Config::rdma_gid_index, -1, 255}},
    Row{{"HETCCL_RDMA_GPU", "flag", "1",
         "0: no network card reads or writes GPUs' memory, which goes through pinned memory"},
        Flag{&Config::rdma_gpu}},
    Row{{"HETCCL_RDMA_PKEY", "integer", "0",
         "InfiniBand's partition (a P_Key) that RDMA ports use; 0: the first of the port's table"},
        IntegerRange{&Config::rdma_pkey, 0, 65'535}},
    Row{{"HETCCL_RDMA_QUEUE_PAIRS", "integer", "1",
         "queue pairs that move long messages between two ranks; of two numbers the smaller"},
        IntegerRange{&Config::rdma_queue_pairs, 1, 4}},
    Row{{"HETCCL_RDMA_RETRIES", "integer", "7",
         "times that an RDMA device sends again what is not acknowledged"},
        IntegerRange{&Config::rdma_retries, 0, 7}},
    Row{{"HETCCL_RDMA_SERVICE_LEVEL", "integer", "0", "InfiniBand's service level"},
        IntegerRange{&Config::rdma_service_level, 0, 15}},
    Row{{"HETCCL_RDMA_TIMEOUT", "integer", "17",
         "an RDMA device waits 4.096 us times two to this for an acknowledgement (17: 0.54 s)"},
        IntegerRange{&Config::rdma_timeout, 1, 31}},
    Row{{"HETCCL_RDMA_TRAFFIC_CLASS", "integer", "0", "DSCP and ECN bits of RoCE's packets"},
        IntegerRange{&Config::rdma_traffic_class, 0, 255}},
    Row{{"HETCCL_RUNTIME", "choice", "",
         "cuda or hip: the runtime that hetcclRuntimeLoad loads where the program does not name "
         "one (docs/runtime.md); empty: the process's own, else CUDA's, then AMD's, that shows a "
         "device"},
        Text{&Config::runtime, is_runtime, "cuda or hip"}},
    Row{{"HETCCL_SECRET_FILE", "text", "",
         "a file with a secret that does not travel with the unique id and without which nobody "
         "joins: 16 bytes or more, the same on every rank, mode 600"},
        Text{&Config::secret_file, is_path, "a path of at most 1024 bytes"},
        Agreement::PerRank,
        Empty::Refused},
    Row{{"HETCCL_SHM", "flag", "1", "0 makes clusters of one host talk over TCP"},
        Flag{&Config::transport_shm},
        Agreement::AllRanks},
    Row{{"HETCCL_SLICE_BYTES", "integer", "0", "bytes of a slice; 0 lets hetccl choose"},
        IntegerRange{&Config::slice_bytes, 0, int64_t{1} << 30},
        Agreement::AllRanks},
    Row{{"HETCCL_SOCKET_FAMILY", "choice", "", "inet or inet6; empty allows both"},
        Text{&Config::socket_family, is_family, "inet or inet6"}},
    Row{{"HETCCL_SOCKET_IFNAME", "text", "",
         "network interfaces to use, at whose addresses alone ports are open: prefixes "
         "\"eth,ib\", \"^docker\" for all others, \"=eth0\" exact"},
        Text{&Config::socket_ifname, is_interface_list,
             "interface names with commas, after ^ or = if wanted"}},
    Row{{"HETCCL_TCP_STREAMS", "integer", "0",
         "sockets per TCP channel; 0: two, or one more than HETCCL_TCP_THREADS, or, if these are "
         "more, one for each network card of the host, at most eight"},
        IntegerRange{&Config::tcp_streams, 0, 32},
        Agreement::AllRanks},
    Row{{"HETCCL_TCP_THREADS", "integer", "-1",
         "threads that move large messages over TCP, beside the progress engine's; -1: an eighth "
         "of the cores, at most 4"},
        IntegerRange{&Config::tcp_threads, -1, 16}},
    Row{{"HETCCL_TIMEOUT_MS", "integer", "600000", "milliseconds that one collective may take"},
        IntegerRange{&Config::timeout_ms, 1, kDayMs}},
    Row{{"HETCCL_TRACE", "text", "",
         "file to which a rank writes when each step of its collectives and messages ran, as a "
         "Chrome trace (Perfetto opens it), when a communicator is destroyed and at exit; %r, %p, "
         "%c as for HETCCL_DUMP; empty: nothing is traced"},
        Text{&Config::trace, is_report_pattern, kPatternTakes, Nature::File}},
    Row{{"HETCCL_TRANSPORT", "text", "",
         "the transport between hosts: tcp, verbs (RDMA), ncclnet (a net plug-in), or an "
         "adaptor's, as hetccl info names them; where it cannot be used, init fails and says why. "
         "Empty: the best that both ends have"},
        Text{&Config::transport, is_label, "a transport's name"},
        Agreement::AllRanks},
    Row{{"HETCCL_TUNE", "choice", "off",
         "online: while the job runs, settings of its collectives are tried beside each other, "
         "and the fastest is kept; step: keeps the setting that makes training steps "
         "(hetccl.step) shortest; frozen: what HETCCL_TUNE_FILE says; off: what the cost model "
         "says, as with HETCCL_DETERMINISTIC=1"},
        Text{&Config::tune, is_tuning, "off, online, step or frozen"},
        Agreement::AllRanks},
    Row{{"HETCCL_TUNE_BITS", "choice", "any",
         "keep: tuning tries nothing that could change the order in which elements are added, so "
         "that results have the bits that they have without it; any: it may"},
        Text{&Config::tune_bits, is_bits, "any or keep"},
        Agreement::AllRanks},
    Row{{"HETCCL_TUNE_BUDGET", "integer", "2",
         "percent of the job's time that trials may lose against the default"},
        IntegerRange{&Config::tune_budget, 0, 10'000}},
    Row{{"HETCCL_TUNE_FILE", "text", "",
         "file of what earlier jobs have learnt, read and written by rank 0; empty: "
         "hetccl/tuning.json in the user's cache folder"},
        Text{&Config::tune_file, is_path, "a path of at most 1024 bytes", Nature::File}},
    Row{{"HETCCL_TUNER_ID", "text", "",
         "a unique id in hexadecimal digits: with it, the tuner plug-in of plain NCCL programs "
         "searches while the job runs (docs/nccl-tuner.md). It holds a secret, so it is shown as "
         "(set); empty: with HETCCL_TUNE=frozen the plug-in serves what HETCCL_TUNE_FILE says"},
        Text{&Config::tuner_id, is_unique_id, "256 hexadecimal digits", Nature::Secret}},
    Row{{"HETCCL_WIRE", "text", "",
         "encodes what all-reduces and reduce-scatters (sums and averages of float32, float16 and "
         "bfloat16) send between clusters: int8, int4, e4m3 or e5m2, with :N in blocks of N "
         "elements (32 to 512; 256), each with a scale, with :stochastic rounded at random. "
         "Empty: nothing is encoded"},
        Text{&Config::wire, is_encoding, kEncodingsText},
        Agreement::AllRanks},
    Row{{"HETCCL_WIRE_GATHER", "text", "",
         "like HETCCL_WIRE, for all-gathers, inside clusters too; every rank, the sender included, "
         "gets the decoded block"},
        Text{&Config::wire_gather, is_encoding, kEncodingsText},
        Agreement::AllRanks},
    Row{{"HETCCL_WIRE_INSIDE", "flag", "0",
         "1 encodes in communicators of one cluster, too, where its library exchanges messages; "
         "in others sums inside clusters are exact"},
        Flag{&Config::wire_inside},
        Agreement::AllRanks},
    Row{{"HETCCL_WIRE_LEAST_BYTES", "integer", "65536",
         "blocks of fewer bytes travel as they are, whatever the two settings say"},
        IntegerRange{&Config::wire_least_bytes, 0, int64_t{1} << 40},
        Agreement::AllRanks},
    Row{{"HETCCL_WIRE_BELOW_MBPS", "integer", "0",
         "encodes between clusters only if the slowest link is slower than this many Mbit/s; links "
         "are measured when the communicator is made; 0 encodes on any link"},
        IntegerRange{&Config::wire_below_mbps, 0, int64_t{1} << 40},
        Agreement::AllRanks},
    Row{{"HETCCL_WIRE_SEED", "integer", "0",
         "seed of stochastic rounding; with the call's number, the rank and the element's number "
         "it decides each rounding"},
        IntegerRange{&Config::wire_seed, 0, INT64_MAX}},
};

constexpr auto kEntries = [] {
  std::array<ConfigEntry, kRows.size()> entries;
  for (size_t i = 0; i < kRows.size(); ++i) entries[i] = kRows[i].entry;
  return entries;
}();

/// Parses a value into a Config. Returns what the setting takes if it refuses the value.
struct Assign {
  Config& config;
  std::string_view text;

  std::optional<std::string> operator()(const IntegerRange& range) const {
    const auto value = to_integer(text);
    if (!value || *value < range.first || *value > range.last) {
      return format("an integer from %lld to %lld", static_cast<long long>(range.first),
                    static_cast<long long>(range.last));
    }
    config.*range.member = *value;
    return std::nullopt;
  }
  std::optional<std::string> operator()(const Flag& flag) const {
    if (text != "0" && text != "1") return "0 or 1";
    config.*flag.member = text == "1";
    return std::nullopt;
  }
  std::optional<std::string> operator()(const Text& setting) const {
    if (text.size() > kMaxTextBytes || !setting.accepts(text)) return std::string(setting.takes);
    config.*setting.member = text;
    return std::nullopt;
  }
};

struct Show {
  const Config& config;
  std::string operator()(const IntegerRange& range) const {
    return std::to_string(config.*range.member);
  }
  std::string operator()(const Flag& flag) const { return config.*flag.member ? "1" : "0"; }
  std::string operator()(const Text& setting) const {
    const std::string& text = config.*setting.member;
    return setting.nature == Nature::Secret && !text.empty() ? "(set)" : text;
  }
};

Nature nature_of(const Row& row) {
  const auto* text = std::get_if<Text>(&row.value);
  return text != nullptr ? text->nature : Nature::Plain;
}

// Returns enough of the text to recognise the mistake.
std::string excerpt(const Row& row, std::string_view text) {
  if (nature_of(row) == Nature::Secret)
    return format("(%zu characters, a secret that is not shown)", text.size());
  return std::string(text.substr(0, 80));
}

/// Computes Levenshtein's distance, one row at a time.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string misspelt(std::string_view name) {
  name = name.substr(0, 64);  // the environment is the user's: bound the search and the message
  std::string upper(name);    // settings are in capitals
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const Row* nearest = &kRows[0];
  for (const Row& row : kRows) {
    if (edit_distance(upper, row.entry.name) < edit_distance(upper, nearest->entry.name)) {
      nearest = &row;
    }
  }
  return format("%.*s is no setting of hetccl and is ignored; did you mean %s?",
                static_cast<int>(name.size()), name.data(), nearest->entry.name.data());
}

}  // namespace

std::span<const ConfigEntry> config_entries() {
  return kEntries;
}

std::string mpich_setting(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : std::string(value).substr(0, kMaxTextBytes);
}

bool asks_for_protection() {
  const char* encrypt = std::getenv("HETCCL_ENCRYPT");
  return (encrypt != nullptr && std::string_view(encrypt) != "0") ||
         std::getenv("HETCCL_SECRET_FILE") != nullptr;
}

std::string user_cache_folder() {
  const char* cache = ::secure_getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return cache;
  const char* home = ::secure_getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache" : "";
}

std::optional<JobRank> job_rank() {
  constexpr const char* kVariables[][2] = {
      {"RANK", "WORLD_SIZE"},
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_NTASKS"},
  };
  const auto number_of = [](const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr ? to_integer(value) : std::nullopt;
  };
  for (const auto& [rank_variable, size_variable] : kVariables) {
    const auto rank = number_of(rank_variable), n_ranks = number_of(size_variable);
    if (rank && n_ranks && *rank >= 0 && *rank < *n_ranks && *n_ranks <= INT_MAX)
      return JobRank{static_cast<int>(*rank), static_cast<int>(*n_ranks)};
  }
  return std::nullopt;
}

Result<Config> Config::parse(std::span<const std::string> environment, Rights rights) {
  Config config;
  for (const std::string_view variable : environment) {
    const size_t equals = variable.find('=');
    if (!variable.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string_view name = variable.substr(0, equals);
    const std::string_view text = variable.substr(equals + 1);
    const auto row = std::find_if(kRows.begin(), kRows.end(), [&](const Row& candidate) {
      return candidate.entry.name == name;
    });
    if (row == kRows.end()) {
      if (!name.starts_with(kTestPrefix)) config.warnings_.push_back(misspelt(name));
      continue;
    }
    if (text.empty() && row->empty == Empty::AsUnset) continue;
    if (rights == Rights::Others && nature_of(*row) == Nature::File) {
      config.warnings_.push_back(
          std::string(row->entry.name) +
          " is ignored: this program runs with another user's rights (setuid)");
      continue;
    }
    if (text.empty()) {
      return error(
          ErrorCode::InvalidArgument,
          "%s is set but empty: give it a value (docs/settings.md), or unset it to do without",
          row->entry.name.data());
    }
    if (const auto takes = std::visit(Assign{config, text}, row->value)) {
      return error(ErrorCode::InvalidArgument, "%s=%s: takes %s", row->entry.name.data(),
                   excerpt(*row, text).c_str(), takes->c_str());
    }
    config.given_.push_back(row->entry.name);
  }
  return config;
}

Result<Config> Config::from_environment() {
  std::vector<std::string> environment;
  for (char** variable = environ; variable && *variable; ++variable) {
    if (std::string_view(*variable).starts_with(kPrefix)) environment.emplace_back(*variable);
  }
  HETCCL_ASSIGN(Config config,
                parse(environment, ::getauxval(AT_SECURE) != 0 ? Rights::Others : Rights::Own));
  for (const char* name : {"CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING"}) {
    const char* value = std::getenv(name);
    config.launches_wait |= value != nullptr && *value != '\0' && std::string_view(value) != "0";
  }
  return config;
}

void Config::warn(int rank) const {
  const Log log{parse_log_level(log_level).value_or(LogLevel::Warn), rank};
  for (const std::string& warning : warnings_) {
    rank > 0 ? log.info("%s", warning.c_str()) : log.warn("%s", warning.c_str());
  }
}

bool Config::is_given(std::string_view name) const {
  return std::find(given_.begin(), given_.end(), name) != given_.end();
}

std::map<std::string, std::string> Config::describe() const {
  std::map<std::string, std::string> values;
  for (const Row& row : kRows) {
    values.emplace(row.entry.name, std::visit(Show{*this}, row.value));
  }
  return values;
}

std::string Config::agreed() const {
  std::string lines;
  for (const Row& row : kRows) {
    if (row.agreement == Agreement::PerRank) continue;
    lines.append(row.entry.name)
        .append("=")
        .append(std::visit(Show{*this}, row.value))
        .append("\n");
  }
  return lines;
}

}  // namespace hetccl
