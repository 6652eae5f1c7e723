// Stream capture.
#include "cuda/numbers.h"
#include "hip/call.h"

using namespace forward;

namespace {

static_assert(hipStreamCaptureModeGlobal == static_cast<int>(cuda::kCaptureGlobal));
static_assert(hipStreamCaptureModeThreadLocal == static_cast<int>(cuda::kCaptureThreadLocal));
static_assert(hipStreamCaptureModeRelaxed == static_cast<int>(cuda::kCaptureRelaxed));
static_assert(hipStreamCaptureStatusNone == static_cast<int>(cuda::kCaptureNone));
static_assert(hipStreamCaptureStatusActive == static_cast<int>(cuda::kCaptureActive));
static_assert(hipStreamCaptureStatusInvalidated == static_cast<int>(cuda::kCaptureInvalidated));

bool defined(hipStreamCaptureMode mode) {
  return mode >= hipStreamCaptureModeGlobal && mode <= hipStreamCaptureModeRelaxed;
}

// A status that HIP lacks counts as invalidated, the status in which a program must not go on.
hipStreamCaptureStatus to_hip(int status) {
  if (status == cuda::kCaptureNone) return hipStreamCaptureStatusNone;
  if (status == cuda::kCaptureActive) return hipStreamCaptureStatusActive;
  return hipStreamCaptureStatusInvalidated;
}

}  // namespace

hipError_t hipStreamIsCapturing(hipStream_t stream, hipStreamCaptureStatus* pCaptureStatus) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (pCaptureStatus == nullptr) return hipErrorInvalidValue;
    int status = 0;
    const int code = driver.stream_is_capturing(queue_of(stream), &status);
    *pCaptureStatus = to_hip(status);
    return from_cuda(code);
  });
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode* mode) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (mode == nullptr) return hipErrorInvalidValue;
    if (!defined(*mode)) return reject("hipThreadExchangeStreamCaptureMode", "mode", *mode);
    int exchanged = *mode;
    const int code = driver.exchange_capture_mode(&exchanged);
    if (code == 0) *mode = static_cast<hipStreamCaptureMode>(exchanged);
    return from_cuda(code);
  });
}

hipError_t hipStreamBeginCapture(hipStream_t stream, hipStreamCaptureMode mode) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (!defined(mode)) return reject("hipStreamBeginCapture", "mode", mode);
    return from_cuda(driver.stream_begin_capture(queue_of(stream), mode));
  });
}

hipError_t hipStreamEndCapture(hipStream_t stream, hipGraph_t* pGraph) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (pGraph == nullptr) return hipErrorInvalidValue;
    cuda::Handle graph = nullptr;
    const int code = driver.stream_end_capture(queue_of(stream), &graph);
    *pGraph = static_cast<hipGraph_t>(graph);
    return from_cuda(code);
  });
}

hipError_t hipStreamGetCaptureInfo_v2(hipStream_t stream, hipStreamCaptureStatus* captureStatus_out,
                                      unsigned long long* id_out, hipGraph_t* graph_out,
                                      const hipGraphNode_t** dependencies_out,
                                      size_t* numDependencies_out) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (captureStatus_out == nullptr) return hipErrorInvalidValue;
    int status = 0;
    std::uint64_t id = 0;
    cuda::Handle graph = nullptr;
    const cuda::Handle* dependencies = nullptr;
    size_t count = 0;
    const int code = driver.stream_get_capture_info(queue_of(stream), &status, &id, &graph,
                                                    &dependencies, &count);
    if (code != 0) return from_cuda(code);
    *captureStatus_out = to_hip(status);
    if (id_out != nullptr) *id_out = id;
    if (graph_out != nullptr) *graph_out = static_cast<hipGraph_t>(graph);
    if (dependencies_out != nullptr) {
      *dependencies_out = reinterpret_cast<const hipGraphNode_t*>(dependencies);
    }
    if (numDependencies_out != nullptr) *numDependencies_out = count;
    return hipSuccess;
  });
}

hipError_t hipStreamGetCaptureInfo(hipStream_t stream, hipStreamCaptureStatus* pCaptureStatus,
                                   unsigned long long* pId) {
  return hipStreamGetCaptureInfo_v2(stream, pCaptureStatus, pId, nullptr, nullptr, nullptr);
}
