#include "device/gpu/program.h"

namespace hetccl::device::gpu {

Status check(const Api& api, int code, const char* what) {
  if (code == 0) [[likely]]
    return {};
  return error(Code::SystemError, "%s: %s: %s (%d)", api.vendor.c_str(), what, api.error_text(code),
               code);
}

Program::~Program() {
  for (void* module : modules_) api_.unload_module(module);
}

Result<void*> Program::find(const std::string& name) const {
  // Of a module that lacks it the answer is an error like any other: the last one is told.
  Status status = error(Code::InternalError, "no kernels are loaded");
  for (void* module : modules_) {
    void* kernel = nullptr;
    status = check(api_, api_.find_kernel(&kernel, module, name.c_str()), name.c_str());
    if (status.ok()) return kernel;
  }
  return status;
}

Status Program::load(const kernels::Images& images) {
  for (const auto& image : images) {
    void* module = nullptr;
    HETCCL_TRY(check(api_, api_.load_module(&module, image.data()), "loading kernels"));
    modules_.push_back(module);
  }
  for (size_t type = 0; type < reductions_.size(); ++type) {
    if (!is_valid(static_cast<DataType>(type))) continue;
    for (size_t op = 0; op < reductions_[type].size(); ++op) {
      const auto name = kernels::name_of(static_cast<DataType>(type), static_cast<RedOp>(op));
      HETCCL_ASSIGN(reductions_[type][op], find(name));
    }
  }
  HETCCL_ASSIGN(wait_flag_, find(kernels::kWaitFlag));
  HETCCL_ASSIGN(write_flag_, find(kernels::kWriteFlag));
  return {};
}

}  // namespace hetccl::device::gpu
