// Functions that ask whether programs may pass device memory: Open MPI's, and MPICH's for AMD.
#include <exception>

#include "mpi/exports.h"
#include "mpi/job.h"

namespace hetccl::mpi {
namespace {

using device::gpu::kCuda, device::gpu::kHip, device::gpu::Vendor;

// Returns 1 if the MPI accepts device memory, or if hetccl makes it work: it does once the program
// has loaded the vendor's runtime.
int answer(const Vendor& vendor) {
  try {
    const VendorSet hetccl = Job::may_serve() ? loaded_runtimes() : 0;
    return ((ask_device_memory() | hetccl) & set_of(vendor)) != 0 ? 1 : 0;
  } catch (const std::exception&) {
    return 0;  // out of memory
  }
}

}  // namespace

HETCCL_MPI_EXPORT MPIX_Query_cuda_support() {
  return answer(kCuda);
}
HETCCL_MPI_EXPORT MPIX_Query_rocm_support() {
  return answer(kHip);
}
HETCCL_MPI_EXPORT MPIX_Query_hip_support() {
  return answer(kHip);
}

}  // namespace hetccl::mpi
