/// The Python module hetccl._torch.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backend.h"
#include "host_work.h"
#include "registry.h"

namespace hetccl::torch_backend {
namespace {

py::dict stats_of(const HetcclBackend& backend) {
  hetcclCommStats_t stats;
  {
    const py::gil_scoped_release release;
    stats = backend.stats();
  }
  py::dict out;
  out["operations"] = stats.operations;
  out["cross_bytes_sent"] = stats.cross_bytes_sent;
  out["least_cross_bytes"] = stats.least_cross_bytes;
  out["plans"] = stats.plans;
  return out;
}

}  // namespace
}  // namespace hetccl::torch_backend

PYBIND11_MODULE(_torch, module) {
  using namespace hetccl::torch_backend;
  using std::chrono::milliseconds;
  module.doc() = "hetccl's backend of torch.distributed.";
  py::module_::import("torch._C._distributed_c10d");  // registers the base classes
  using NoGil = py::call_guard<py::gil_scoped_release>;
  module.def("seconds_waited", &seconds_waited, "Seconds that this thread was blocked.");
  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(module,
                                                                                     "Options")
      .def("__copy__", &GroupOptions::clone)
      .def("__deepcopy__", [](const GroupOptions& own, const py::dict&) { return own.clone(); });
  py::class_<HetcclBackend, c10d::Backend, c10::intrusive_ptr<HetcclBackend>>(module, "Backend")
      .def_property_readonly("options", &HetcclBackend::getBackendOptions,
                             "A copy of the options that the group was made with.")
      .def(
          "perform_nocolor_split", [](const HetcclBackend&, c10::Device) {}, py::arg("device"),
          "torch calls this on ranks that are not members of a new_group. Does nothing, since the "
          "members meet through the store.")
      .def("stats", &stats_of, "Counters of this rank's communicator since init, as a dict.")
      .def(
          "_set_default_timeout",
          [](HetcclBackend& backend, milliseconds timeout) { backend.setTimeout(timeout); },
          py::arg("timeout"), NoGil(), "The deadline of collectives called from now on.")
      .def("topology", &HetcclBackend::topology, NoGil(), "The topology as JSON.")
      .def("encode", &HetcclBackend::encode, py::arg("tensor"), py::arg("codes"),
           py::arg("encoding"), NoGil(),
           "Encodes a tensor into `codes`, hetccl.encoded_bytes(tensor.numel(), encoding) bytes of "
           "uint8 on the same device; on a GPU on torch's current stream, once the group has made "
           "its first collective. Does not communicate.")
      .def("decode", &HetcclBackend::decode, py::arg("codes"), py::arg("tensor"),
           py::arg("encoding"), NoGil(), "Decodes codes of `encode`, under the same conditions.")
      .def("all_reduce_with_residual", &HetcclBackend::all_reduce_with_residual, py::arg("tensor"),
           py::arg("residual"), py::arg("op") = c10d::ReduceOp(c10d::ReduceOp::SUM), NoGil(),
           "An asynchronous all_reduce with error feedback: an encoded call stores its rounding "
           "errors in `residual` and adds them in the next call. `residual` begins as zeros, and "
           "has the tensor's size and device. Returns a Work.")
      .def("tuning", &HetcclBackend::tuning, NoGil(),
           "The state of tuning, as the JSON of hetcclCommGetTuning.");
  py::class_<Registry, std::shared_ptr<Registry>>(module, "Registry")
      .def(py::init<>())
      .def(
          "create",
          [](Registry& registry, const c10d::DistributedBackendOptions& options,
             std::optional<c10::Device> device, const Registry::BackendPtr& world,
             std::optional<std::string> wire, std::optional<std::string> wire_gather,
             std::optional<bool> wire_inside) {
            return registry.create(options, device, world,
                                   {std::move(wire), std::move(wire_gather), wire_inside});
          },
          py::arg("options"), py::arg("device"), py::arg("world"), py::arg("wire") = py::none(),
          py::arg("wire_gather") = py::none(), py::arg("wire_inside") = py::none(), NoGil(),
          "Joins a process group; blocks until all ranks have come. `device` is used if nothing "
          "else decides; `world` is the default group's backend, if hetccl's; `wire`, "
          "`wire_gather` and `wire_inside` are as for hetccl.Communicator.")
      .def(
          "close_all",
          [](Registry& registry, int64_t grace_ms) { registry.close_all(milliseconds(grace_ms)); },
          py::arg("grace_ms"), NoGil(), "Ends every living backend within about the grace given.");
}
