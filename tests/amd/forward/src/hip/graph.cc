// Graphs.
#include "hip/call.h"
#include "hip/host_function.h"

using namespace forward;

hipError_t hipGraphAddHostNode(hipGraphNode_t* pGraphNode, hipGraph_t graph,
                               const hipGraphNode_t* pDependencies, size_t numDependencies,
                               const hipHostNodeParams* pNodeParams) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (pGraphNode == nullptr || pNodeParams == nullptr || pNodeParams->fn == nullptr) {
      return hipErrorInvalidValue;
    }
    const WrappedFunction wrapped =
        wrap_host_function(pNodeParams->fn, pNodeParams->userData, true);
    const cuda::HostNode node{wrapped.function, wrapped.data};
    cuda::Handle added = nullptr;
    const int code = driver.graph_add_host_node(
        &added, graph, reinterpret_cast<const cuda::Handle*>(pDependencies), numDependencies,
        &node);
    if (code != 0) discard(wrapped);
    *pGraphNode = static_cast<hipGraphNode_t>(added);
    return from_cuda(code);
  });
}

hipError_t hipGraphInstantiate(hipGraphExec_t* pGraphExec, hipGraph_t graph,
                               hipGraphNode_t* pErrorNode, char* pLogBuffer, size_t bufferSize) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    if (pGraphExec == nullptr) return hipErrorInvalidValue;
    if (pErrorNode != nullptr) *pErrorNode = nullptr;
    if (pLogBuffer != nullptr && bufferSize > 0) *pLogBuffer = '\0';
    cuda::Handle executable = nullptr;
    const int code = driver.graph_instantiate(&executable, graph, 0);
    *pGraphExec = static_cast<hipGraphExec_t>(executable);
    return from_cuda(code);
  });
}

hipError_t hipGraphLaunch(hipGraphExec_t graphExec, hipStream_t stream) {
  return enqueue(__func__, stream, [&](const cuda::Driver& driver, cuda::Handle queue) {
    return from_cuda(driver.graph_launch(graphExec, queue));
  });
}

hipError_t hipGraphExecDestroy(hipGraphExec_t graphExec) {
  return in_context(__func__, [&](const cuda::Driver& driver) {
    return from_cuda(driver.graph_exec_destroy(graphExec));
  });
}

hipError_t hipGraphDestroy(hipGraph_t graph) {
  return in_context(
      __func__, [&](const cuda::Driver& driver) { return from_cuda(driver.graph_destroy(graph)); });
}
