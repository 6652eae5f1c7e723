#include "hiprtc/nvrtc.h"

#include "core/shared_object.h"

namespace forward::nvrtc {
namespace {

const Library* load() {
  const SharedObject object("FORWARD_NVRTC", "libnvrtc.so.13,libnvrtc.so.12,libnvrtc.so");
  static Library result;
  object.resolve(result.create, "nvrtcCreateProgram");
  object.resolve(result.destroy, "nvrtcDestroyProgram");
  object.resolve(result.compile, "nvrtcCompileProgram");
  object.resolve(result.log_size, "nvrtcGetProgramLogSize");
  object.resolve(result.log, "nvrtcGetProgramLog");
  object.resolve(result.cubin_size, "nvrtcGetCUBINSize");
  object.resolve(result.cubin, "nvrtcGetCUBIN");
  object.resolve(result.add_name, "nvrtcAddNameExpression");
  object.resolve(result.lowered_name, "nvrtcGetLoweredName");
  const bool complete = result.create && result.destroy && result.compile && result.log_size &&
                        result.log && result.cubin_size && result.cubin && result.add_name &&
                        result.lowered_name;
  return complete ? &result : nullptr;
}

}  // namespace

const Library* library() {
  static const Library* instance = load();
  return instance;
}

}  // namespace forward::nvrtc
