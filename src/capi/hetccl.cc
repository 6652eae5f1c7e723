// The C API: checks arguments, and turns Status into return codes. Nothing else happens here.
#include "hetccl/hetccl.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/encoding.h"
#include "capi/group.h"
#include "capi/process.h"

using hetccl::DataType;
using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Result;
using hetccl::Status;
using hetccl::TaskQueue;
using hetccl::capi::deadline_of;
using hetccl::capi::finished;
using hetccl::capi::kLongestTimeoutMs;
using hetccl::capi::narrow;
using hetccl::capi::null;
using hetccl::capi::outside_group;
using hetccl::capi::with;
using hetccl::comm::Communicator;
using hetccl::comm::CommunicatorOptions;
using hetccl::progress::Engine;

namespace {

template <typename T>
Status put(T* out, const char* argument, T value) {
  if (out == nullptr) return null(argument);
  *out = value;
  return {};
}

// The first release's structs: callers that were compiled against it pass no more.
constexpr size_t kFirstConfigBytes = offsetof(hetcclConfig_t, blocking);
constexpr size_t kFirstStatsBytes = offsetof(hetcclCommStats_t, plans) + sizeof(uint64_t);

Result<CommunicatorOptions> options_of(const hetcclConfig_t& given) {
  if (given.magic != HETCCL_CONFIG_MAGIC || given.size < kFirstConfigBytes) {
    return error(ErrorCode::InvalidArgument, "config was not made by HETCCL_CONFIG_INITIALIZER");
  }
  hetcclConfig_t config = HETCCL_CONFIG_INITIALIZER;
  std::memcpy(&config, &given, std::min(given.size, sizeof config));
  const std::pair<const char*, int64_t> times[] = {{"timeout_ms", config.timeout_ms},
                                                   {"init_timeout_ms", config.init_timeout_ms},
                                                   {"init_limit_ms", config.init_limit_ms}};
  for (const auto& [name, time] : times) {
    if (time < 0) return error(ErrorCode::InvalidArgument, "config.%s is negative", name);
  }
  if (config.blocking != 0 && config.blocking != 1) {
    return error(ErrorCode::InvalidArgument, "config.blocking is %d: it must be 0 or 1",
                 config.blocking);
  }
  if (config.wire_inside < -1 || config.wire_inside > 1) {
    return error(ErrorCode::InvalidArgument, "config.wire_inside is %d: it must be -1, 0 or 1",
                 config.wire_inside);
  }
  const std::pair<const char*, const char*> encodings[] = {{"wire", config.wire},
                                                           {"wire_gather", config.wire_gather}};
  for (const auto& [name, encoding] : encodings) {
    if (encoding == nullptr) continue;
    HETCCL_TRY(hetccl::parse_encoding(encoding).status().with(std::string("config.") + name));
  }
  const auto text = [](const char* value) { return value == nullptr ? "" : value; };
  CommunicatorOptions options;
  options.device = text(config.device);
  options.cluster = text(config.cluster);
  options.host_id = text(config.host_id);
  options.timeout_ms = std::min(config.timeout_ms, kLongestTimeoutMs);
  options.init_timeout_ms = std::min(config.init_timeout_ms, kLongestTimeoutMs);
  options.init_limit_ms = std::min(config.init_limit_ms, kLongestTimeoutMs);
  options.blocking = config.blocking == 1;
  if (config.wire != nullptr) options.wire = config.wire;
  if (config.wire_gather != nullptr) options.wire_gather = config.wire_gather;
  if (config.wire_inside >= 0) options.wire_inside = config.wire_inside == 1;
  return options;
}

Status init(hetcclComm_t* comm, int n_ranks, const hetcclUniqueId& id, int rank,
            const hetcclConfig_t* config) {
  if (comm == nullptr) return null("comm");
  *comm = nullptr;
  HETCCL_TRY(outside_group("making a communicator"));
  CommunicatorOptions options;
  if (config != nullptr) {
    HETCCL_ASSIGN(options, options_of(*config));
  }
  options.rank = rank;
  options.n_ranks = n_ranks;
  HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
  hetccl::bootstrap::UniqueId unique_id;
  static_assert(sizeof unique_id == sizeof id.internal);
  std::memcpy(unique_id.data(), id.internal, sizeof id.internal);
  HETCCL_ASSIGN(auto communicator, Communicator::create(*runtime, unique_id, std::move(options)));
  *comm = hetccl::capi::adopt(std::move(communicator), runtime);
  return {};
}

Status split(Communicator& parent, int color, int key, hetcclComm_t* newcomm,
             const hetcclConfig_t* config) {
  HETCCL_TRY(outside_group("hetcclCommSplit"));
  std::optional<CommunicatorOptions> options;
  if (config != nullptr) {
    HETCCL_ASSIGN(options, options_of(*config));
  }
  HETCCL_ASSIGN(auto child, parent.split(color, key, options ? &*options : nullptr));
  if (child == nullptr) return {};
  HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
  *newcomm = hetccl::capi::adopt(std::move(child), runtime);
  return {};
}

// What a call that made `comm`, or that works on it in the background, answers.
hetcclResult_t in_progress_or(hetcclResult_t result, hetcclComm_t comm) {
  if (result != hetcclSuccess || comm == nullptr) return result;
  const auto found = hetccl::capi::find(comm);
  return found.ok() && !found.value()->blocking() ? hetcclInProgress : hetcclSuccess;
}

// Runs `body(engine, queue)` on a stream of the host device, which stays alive meanwhile.
template <typename Body>
Status with_stream(hetcclStream_t stream, Body&& body) {
  if (stream == nullptr) return null("stream");
  HETCCL_ASSIGN(auto* runtime, hetccl::capi::runtime_of(stream));
  HETCCL_ASSIGN(const auto queue, runtime->host_stream(stream));
  return body(runtime->engine(), *queue);
}

}  // namespace

hetcclResult_t hetcclGetVersion(int* version) {
  return finished([&] { return put(version, "version", HETCCL_VERSION_CODE); });
}

const char* hetcclGetErrorString(hetcclResult_t result) {
  switch (result) {
    case hetcclSuccess:
      return "no error";
    case hetcclUnsupported:
      return "unsupported";
    case hetcclSystemError:
      return "system error";
    case hetcclInternalError:
      return "internal error";
    case hetcclInvalidArgument:
      return "invalid argument";
    case hetcclInvalidUsage:
      return "invalid usage";
    case hetcclRemoteError:
      return "remote error";
    case hetcclInProgress:
      return "in progress";
    case hetcclTimeout:
      return "timeout";
    case hetcclAborted:
      return "aborted";
  }
  return "unknown result code";
}

const char* hetcclGetLastError(hetcclComm_t comm) {
  if (comm == nullptr) return hetccl::capi::last_error().c_str();
  thread_local std::string text;
  const auto code = finished([&]() -> Status {
    const auto found = hetccl::capi::find(comm);
    text = (found.ok() ? found.value()->dispatch().failure() : found.status()).message();
    return {};
  });
  return code == hetcclSuccess ? text.c_str() : hetccl::capi::last_error().c_str();
}

hetcclResult_t hetcclGetUniqueId(hetcclUniqueId* id) {
  return finished([&]() -> Status {
    if (id == nullptr) return null("id");
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    HETCCL_ASSIGN(const auto unique_id, runtime->service().unique_id());
    std::memcpy(id->internal, unique_id.data(), sizeof id->internal);
    return {};
  });
}

hetcclResult_t hetcclCommInitRank(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank) {
  return finished([&] { return init(comm, nranks, id, rank, nullptr); });
}

hetcclResult_t hetcclCommInitRankConfig(hetcclComm_t* comm, int nranks, hetcclUniqueId id, int rank,
                                        const hetcclConfig_t* config) {
  const auto result = finished([&] { return init(comm, nranks, id, rank, config); });
  return result == hetcclSuccess ? in_progress_or(result, *comm) : result;
}

hetcclResult_t hetcclCommSplit(hetcclComm_t comm, int color, int key, hetcclComm_t* newcomm,
                               const hetcclConfig_t* config) {
  const auto result = with(comm, [&](Communicator& self) -> Status {
    if (newcomm == nullptr) return null("newcomm");
    *newcomm = nullptr;
    return split(self, color, key, newcomm, config);
  });
  return result == hetcclSuccess ? in_progress_or(result, *newcomm) : result;
}

hetcclResult_t hetcclCommFinalize(hetcclComm_t comm) {
  return in_progress_or(with(comm,
                             [](Communicator& self) -> Status {
                               HETCCL_TRY(outside_group("hetcclCommFinalize"));
                               return self.finalize();
                             }),
                        comm);
}

hetcclResult_t hetcclCommDestroy(hetcclComm_t comm) {
  return finished([&]() -> Status {
    HETCCL_TRY(outside_group("hetcclCommDestroy"));
    HETCCL_ASSIGN(const auto owned, hetccl::capi::release(comm));
    return owned->finish();
  });
}

hetcclResult_t hetcclCommAbort(hetcclComm_t comm) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto owned, hetccl::capi::release(comm));
    owned->abort("the communicator was aborted");
    return {};
  });
}

hetcclResult_t hetcclShutdown(int64_t grace_ms) {
  return finished([&]() -> Status {
    if (grace_ms < 0) return error(ErrorCode::InvalidArgument, "grace_ms is negative");
    return hetccl::capi::shut_down(
        std::chrono::milliseconds(std::min(grace_ms, kLongestTimeoutMs)));
  });
}

hetcclResult_t hetcclCommGetAsyncError(hetcclComm_t comm, hetcclResult_t* async_error) {
  return with(comm, [&](Communicator& self) {
    if (async_error == nullptr) return null("async_error");
    *async_error =
        self.in_progress() ? hetcclInProgress : hetccl::capi::finish(self.dispatch().failure());
    return Status();
  });
}

hetcclResult_t hetcclCommCount(hetcclComm_t comm, int* count) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.dispatch().known());
    return put(count, "count", self.membership().n_ranks());
  });
}

hetcclResult_t hetcclCommUserRank(hetcclComm_t comm, int* rank) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.dispatch().known());
    return put(rank, "rank", self.membership().rank());
  });
}

hetcclResult_t hetcclCommSetTimeout(hetcclComm_t comm, int64_t timeout_ms) {
  return with(comm, [&](Communicator& self) -> Status {
    if (timeout_ms <= 0) {
      return error(ErrorCode::InvalidArgument, "timeout_ms is %lld: it must be positive",
                   static_cast<long long>(timeout_ms));
    }
    self.dispatch().set_timeout(std::min(timeout_ms, kLongestTimeoutMs));
    return {};
  });
}

hetcclResult_t hetcclRedOpCreatePreMulSum(hetcclRedOp_t* op, void* scalar,
                                          hetcclDataType_t datatype,
                                          hetcclScalarResidence_t residence, hetcclComm_t comm) {
  return with(comm, [&](Communicator& self) -> Status {
    if (op == nullptr) return null("op");
    if (residence != hetcclScalarDevice && residence != hetcclScalarHostImmediate) {
      return error(ErrorCode::InvalidArgument, "residence %d is none that hetccl knows",
                   static_cast<int>(residence));
    }
    HETCCL_ASSIGN(const int number,
                  self.dispatch().create_pre_mul_sum(narrow<DataType>(datatype), scalar,
                                                     residence == hetcclScalarDevice));
    *op = static_cast<hetcclRedOp_t>(number);
    return {};
  });
}

hetcclResult_t hetcclRedOpDestroy(hetcclRedOp_t op, hetcclComm_t comm) {
  return with(comm, [&](Communicator& self) {
    return self.dispatch().red_ops().destroy(static_cast<int>(op));
  });
}

hetcclResult_t hetcclHostStreamCreate(hetcclStream_t* stream) {
  return finished([&]() -> Status {
    if (stream == nullptr) return null("stream");
    HETCCL_ASSIGN(*stream, hetccl::capi::create_host_stream());
    return {};
  });
}

hetcclResult_t hetcclHostStreamDestroy(hetcclStream_t stream) {
  return finished([&]() -> Status {
    if (stream == nullptr) return null("stream");
    return hetccl::capi::destroy_host_stream(stream);
  });
}

hetcclResult_t hetcclHostStreamRecord(hetcclStream_t stream, uint64_t* ticket) {
  return finished([&] {
    return with_stream(stream, [&](Engine&, const TaskQueue& queue) {
      return put(ticket, "ticket", queue.pushed());
    });
  });
}

hetcclResult_t hetcclHostStreamQuery(hetcclStream_t stream, uint64_t ticket) {
  bool reached = false;
  const auto result = finished([&] {
    return with_stream(stream, [&](Engine&, const TaskQueue& queue) {
      reached = queue.finished() >= ticket;
      return Status();
    });
  });
  return result == hetcclSuccess && !reached ? hetcclInProgress : result;
}

hetcclResult_t hetcclHostStreamWait(hetcclStream_t stream, uint64_t ticket, int64_t timeout_ms) {
  return finished([&] {
    return with_stream(stream, [&](Engine& engine, const TaskQueue& queue) -> Status {
      if (engine.wait([&] { return queue.finished() >= ticket; },
                      deadline_of(engine.clock(), timeout_ms)))
        return {};
      return error(ErrorCode::Timeout, "the stream's work did not complete within %lld ms",
                   static_cast<long long>(timeout_ms));
    });
  });
}

hetcclResult_t hetcclCommWait(hetcclComm_t comm, int64_t timeout_ms) {
  return with(comm, [&](Communicator& self) -> Status {
    const auto deadline = deadline_of(self.runtime().engine().clock(), timeout_ms);
    HETCCL_ASSIGN(const bool idle, self.dispatch().await_all(deadline));
    if (idle) return {};
    return error(ErrorCode::Timeout, "rank %d's work did not complete within %lld ms",
                 self.membership().rank(), static_cast<long long>(timeout_ms));
  });
}

hetcclResult_t hetcclSetIdleHook(hetcclIdleHook_t hook, void* context) {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    std::function<void()> call;
    if (hook != nullptr) call = [=] { hook(context); };
    runtime->set_idle_hook(std::move(call));
    return {};
  });
}

hetcclResult_t hetcclCommIsCapturing(hetcclComm_t comm, hetcclStream_t stream, int* capturing) {
  return with(comm, [&](Communicator& self) -> Status {
    if (capturing == nullptr) return null("capturing");
    HETCCL_ASSIGN(const bool is, self.dispatch().is_capturing(stream));
    *capturing = is ? 1 : 0;
    return {};
  });
}

hetcclResult_t hetcclCommGetStats(hetcclComm_t comm, hetcclCommStats_t* stats) {
  return with(comm, [&](Communicator& self) -> Status {
    if (stats == nullptr) return null("stats");
    const size_t size = stats->size;
    if (size < kFirstStatsBytes) {
      return error(ErrorCode::InvalidArgument, "stats->size is not sizeof(hetcclCommStats_t)");
    }
    HETCCL_TRY(self.dispatch().known());
    const auto now = self.dispatch().statistics();
    const hetcclCommStats_t all = {size, now.operations, now.cross_bytes_sent,
                                   now.least_cross_bytes, now.plans};
    std::memcpy(stats, &all, std::min(size, sizeof all));
    return {};
  });
}

hetcclResult_t hetcclCommGetTopology(hetcclComm_t comm, const char** json) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.dispatch().known());
    return put(json, "json", self.membership().topology_json().c_str());
  });
}

hetcclResult_t hetcclCommGetTuning(hetcclComm_t comm, const char** json) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.dispatch().known());
    thread_local std::string text;
    text = self.dispatch().tuning_json();
    return put(json, "json", text.c_str());
  });
}

hetcclResult_t hetcclStep() {
  return finished([&]() -> Status {
    HETCCL_ASSIGN(const auto communicators, hetccl::capi::all_communicators());
    for (const auto& communicator : communicators) communicator->dispatch().step();
    return {};
  });
}

hetcclResult_t hetcclCommSetTuning(hetcclComm_t comm, const char* json) {
  return with(comm, [&](Communicator& self) -> Status {
    if (json == nullptr) return null("json");
    return self.dispatch().set_tuning(json);
  });
}

hetcclResult_t hetcclCommGetTuningSpace(hetcclComm_t comm, const char* collective, size_t count,
                                        hetcclDataType_t datatype, hetcclRedOp_t op, int root,
                                        const char** json) {
  return with(comm, [&](Communicator& self) -> Status {
    if (collective == nullptr) return null("collective");
    const auto which = hetccl::parse_collective(collective);
    if (!which) {
      return error(ErrorCode::InvalidArgument, "collective \"%.80s\" is none of %s", collective,
                   hetccl::collective_names().c_str());
    }
    thread_local std::string text;
    HETCCL_ASSIGN(text, self.dispatch().tuning_space({*which, narrow<hetccl::DataType>(datatype),
                                                      narrow<hetccl::RedOp>(op), root, count}));
    return put(json, "json", text.c_str());
  });
}

hetcclResult_t hetcclCommDump(hetcclComm_t comm, const char** json) {
  return with(comm, [&](Communicator& self) -> Status {
    if (json == nullptr) return null("json");
    thread_local std::string text;
    text = self.dispatch().dump();
    *json = text.c_str();
    return {};
  });
}

hetcclResult_t hetcclGetInfo(const char** json) {
  return finished([&]() -> Status {
    if (json == nullptr) return null("json");
    HETCCL_ASSIGN(const auto runtime, hetccl::capi::runtime());
    thread_local std::string text;
    text = runtime->describe();
    *json = text.c_str();
    return {};
  });
}
