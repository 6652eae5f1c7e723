// The C API: only checks arguments, and turns Status into return codes.
#include "hetccl/hetccl.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

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
using hetccl::progress::Engine;

namespace {

template <typename T>
Status put(T* out, const char* argument, T value) {
  if (out == nullptr) return null(argument);
  *out = value;
  return {};
}

// Size of the first release's struct: callers compiled against it pass no more.
constexpr size_t kFirstStatsBytes = offsetof(hetcclCommStats_t, plans) + sizeof(uint64_t);

// Runs `body(engine, queue)` with a stream of the host device, and keeps the stream alive
// meanwhile.
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

hetcclResult_t hetcclCommFinalize(hetcclComm_t comm) {
  const auto result = with(comm, [](Communicator& self) -> Status {
    HETCCL_TRY(outside_group("hetcclCommFinalize"));
    return self.finalize();
  });
  return hetccl::capi::in_progress_or(result, comm);
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

hetcclResult_t hetcclCommCuDevice(hetcclComm_t comm, int* device) {
  return with(comm, [&](Communicator& self) -> Status {
    HETCCL_TRY(self.dispatch().known());
    return put(device, "device", self.gpu());
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
