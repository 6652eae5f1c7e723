/// The Python module hetccl._torch.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <mutex>
#include <optional>
#include <vector>

#include "backend.h"

namespace hetccl::torch_backend {
namespace {

using std::chrono::milliseconds;

/// Makes backends and knows those that live, so that Python can end them before the interpreter
/// does. Owned by torch_backend.py.
class Registry {
 public:
  c10::intrusive_ptr<HetcclBackend> create(const c10d::DistributedBackendOptions& options,
                                           std::optional<c10::Device> preferred) {
    auto backend = c10::make_intrusive<HetcclBackend>(options, preferred);
    const std::lock_guard lock(mutex_);
    std::erase_if(backends_, [](const auto& weak) { return weak.expired(); });
    backends_.emplace_back(backend);
    return backend;
  }

  void close_all(milliseconds grace) {
    std::vector<c10::weak_intrusive_ptr<HetcclBackend>> backends;
    {
      const std::lock_guard lock(mutex_);
      backends.swap(backends_);
    }
    for (const auto& weak : backends) {
      if (const auto backend = weak.lock()) backend->shutdown_within(grace);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<HetcclBackend>> backends_;
};

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
  py::class_<HetcclBackend, c10d::Backend, c10::intrusive_ptr<HetcclBackend>>(module, "Backend")
      .def("stats", &stats_of, "Counters of this rank's communicator since init, as a dict.")
      .def(
          "_set_default_timeout",
          [](HetcclBackend& backend, milliseconds timeout) { backend.setTimeout(timeout); },
          py::arg("timeout"), NoGil(), "The deadline of collectives called from now on.")
      .def("topology", &HetcclBackend::topology, NoGil(), "The topology as JSON.");
  py::class_<Registry>(module, "Registry")
      .def(py::init<>())
      .def("create", &Registry::create, py::arg("options"), py::arg("device"), NoGil(),
           "Joins a process group; blocks until all ranks have come. `device` is what it is on "
           "where "
           "nothing else tells.")
      .def(
          "close_all",
          [](Registry& registry, int64_t grace_ms) { registry.close_all(milliseconds(grace_ms)); },
          py::arg("grace_ms"), NoGil(), "Ends every living backend within about the grace given.");
}
