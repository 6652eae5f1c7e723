#include "device/gpu/loaded_kernels.h"

#include "base/encoding.h"

namespace hetccl::device::gpu {

Status check(const Api& api, int code, const char* what) {
  if (code == 0) [[likely]]
    return {};
  const char* text = api.error_text(code);
  return error(ErrorCode::SystemError, "%s: %s: %s (%d)", api.vendor.c_str(), what,
               text == nullptr ? "unknown error" : text, code);
}

LoadedKernels::~LoadedKernels() {
  for (void* module : modules_) api_.unload_module(module);
}

Result<void*> LoadedKernels::find(const kernels::Images& images, const std::string& name) const {
  // Search the image, an object file, for the symbol's name. Asking every module would cause errors
  // that debugging tools report.
  const std::string_view symbol(name.c_str(), name.size() + 1);
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].find(symbol) == std::string::npos) continue;
    void* kernel = nullptr;
    HETCCL_TRY(check(api_, api_.find_kernel(&kernel, modules_[i], name.c_str()), name.c_str()));
    return kernel;
  }
  return error(ErrorCode::InternalError, "no kernel is called %s", name.c_str());
}

Status LoadedKernels::load(const kernels::Images& images) {
  for (const auto& image : images) {
    void* module = nullptr;
    HETCCL_TRY(check(api_, api_.load_module(&module, image.data()), "loading kernels"));
    modules_.push_back(module);
  }
  for (size_t i = 0; i < reductions_.size(); ++i) {
    const auto type = static_cast<DataType>(i);
    if (!is_valid(type)) continue;
    HETCCL_ASSIGN(batches_[i], find(images, kernels::batch_name_of(type)));
    for (const RedOp op : kernels::kOps) {
      if (!applies(op, type)) continue;
      HETCCL_ASSIGN(reductions_[i][kernels::place_of(op)],
                    find(images, kernels::name_of(type, op)));
    }
  }
  for (size_t i = 0; i < encoded_.size(); ++i) {
    const auto type = static_cast<DataType>(i);
    for (const Format format : kFormats) {
      if (!is_valid(type) || !has_encoding(type)) continue;
      HETCCL_ASSIGN(encoded_[i][static_cast<size_t>(format)],
                    find(images, kernels::name_of(type, format)));
    }
  }
  HETCCL_ASSIGN(copy_list_, find(images, kernels::kCopyList));
  HETCCL_ASSIGN(wait_flag_, find(images, kernels::kWaitFlag));
  HETCCL_ASSIGN(write_flag_, find(images, kernels::kWriteFlag));
  return {};
}

}  // namespace hetccl::device::gpu
