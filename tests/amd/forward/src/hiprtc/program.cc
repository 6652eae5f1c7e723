// libhiprtc.so.6 of "forward", a library for tests only: it compiles HIP programs with NVIDIA's
// run-time compiler for the NVIDIA GPU of this machine. No result of it is a result of AMD.
#include <hip/hip_runtime_api.h>
#include <hip/hiprtc.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/hostile.h"
#include "core/reject.h"
#include "hiprtc/nvrtc.h"
#include "hiprtc/options.h"
#include "hiprtc/prelude.h"

struct _hiprtcProgram {
  forward::nvrtc::Program program = nullptr;
  std::string own_log;  // Messages of this library, in front of NVRTC's log.
};

namespace {

using forward::nvrtc::Library;

static_assert(HIPRTC_ERROR_OUT_OF_MEMORY == 1 && HIPRTC_ERROR_INVALID_OPTION == 5);
static_assert(HIPRTC_ERROR_COMPILATION == 6 && HIPRTC_ERROR_INTERNAL_ERROR == 11);
static_assert(HIPRTC_ERROR_LINKING == 100);

// Both vendors number the results 0 to 11 alike; NVRTC's later ones have no counterpart.
hiprtcResult from_nvrtc(int code) {
  const bool shared = code >= HIPRTC_SUCCESS && code <= HIPRTC_ERROR_INTERNAL_ERROR;
  return shared ? static_cast<hiprtcResult>(code) : HIPRTC_ERROR_INTERNAL_ERROR;
}

std::string log_of(const Library& library, hiprtcProgram program) {
  std::size_t bytes = 0;
  std::string text;
  if (library.log_size(program->program, &bytes) == 0 && bytes > 0) {
    text.resize(bytes);
    if (library.log(program->program, text.data()) != 0) text.clear();
    text.resize(std::strlen(text.c_str()));
  }
  return program->own_log + text;
}

}  // namespace

/// Returns the number of options that libhiprtc.so.6 rejected.
extern "C" [[gnu::visibility("default")]] unsigned long forward_hiprtc_rejections();

unsigned long forward_hiprtc_rejections() {
  return forward::rejections();
}

const char* hiprtcGetErrorString(hiprtcResult result) {
  switch (result) {
    case HIPRTC_SUCCESS:
      return "HIPRTC_SUCCESS";
    case HIPRTC_ERROR_OUT_OF_MEMORY:
      return "HIPRTC_ERROR_OUT_OF_MEMORY";
    case HIPRTC_ERROR_PROGRAM_CREATION_FAILURE:
      return "HIPRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case HIPRTC_ERROR_INVALID_INPUT:
      return "HIPRTC_ERROR_INVALID_INPUT";
    case HIPRTC_ERROR_INVALID_PROGRAM:
      return "HIPRTC_ERROR_INVALID_PROGRAM";
    case HIPRTC_ERROR_INVALID_OPTION:
      return "HIPRTC_ERROR_INVALID_OPTION";
    case HIPRTC_ERROR_COMPILATION:
      return "HIPRTC_ERROR_COMPILATION";
    case HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE:
      return "HIPRTC_ERROR_BUILTIN_OPERATION_FAILURE";
    case HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION:
      return "HIPRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION";
    case HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION:
      return "HIPRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION";
    case HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID:
      return "HIPRTC_ERROR_NAME_EXPRESSION_NOT_VALID";
    case HIPRTC_ERROR_INTERNAL_ERROR:
      return "HIPRTC_ERROR_INTERNAL_ERROR";
    case HIPRTC_ERROR_LINKING:
      return "HIPRTC_ERROR_LINKING";
  }
  return "invalid hiprtcResult";
}

// AMD's library 6.4.3 answers 9.0 here, not HIP's version.
hiprtcResult hiprtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  *major = 9;
  *minor = 0;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcCreateProgram(hiprtcProgram* prog, const char* src, const char* name,
                                 int numHeaders, const char** headers, const char** includeNames) {
  const Library* library = forward::nvrtc::library();
  if (library == nullptr) return HIPRTC_ERROR_INTERNAL_ERROR;
  if (prog == nullptr || src == nullptr || numHeaders < 0) return HIPRTC_ERROR_INVALID_INPUT;
  if (numHeaders > 0 && (headers == nullptr || includeNames == nullptr)) {
    return HIPRTC_ERROR_INVALID_INPUT;
  }
  // The line directive keeps the numbers in messages those of the user's text.
  const std::string text = forward::prelude() + "\n#line 1\n" + src;
  auto* created = new _hiprtcProgram;
  const int code =
      library->create(&created->program, text.c_str(), name, numHeaders, headers, includeNames);
  if (code != 0) {
    delete created;
    return from_nvrtc(code);
  }
  *prog = created;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcDestroyProgram(hiprtcProgram* prog) {
  if (prog == nullptr || *prog == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  const int code = forward::nvrtc::library()->destroy(&(*prog)->program);
  delete *prog;
  *prog = nullptr;
  return from_nvrtc(code);
}

hiprtcResult hiprtcCompileProgram(hiprtcProgram prog, int numOptions, const char** options) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (numOptions < 0 || (numOptions > 0 && options == nullptr)) return HIPRTC_ERROR_INVALID_INPUT;
  const std::string architecture = forward::real_architecture();
  if (architecture.empty()) {
    prog->own_log = "forward: no NVIDIA GPU; set FORWARD_SM, for example to sm_90\n";
    return HIPRTC_ERROR_INTERNAL_ERROR;
  }
  const std::vector<std::string> given(options, options + numOptions);
  const forward::Options translated = forward::translate_options(given, architecture);
  prog->own_log = translated.error;
  if (translated.wrong_architecture) return HIPRTC_ERROR_INVALID_OPTION;
  if (!translated.error.empty()) return HIPRTC_ERROR_COMPILATION;
  std::vector<const char*> texts;
  for (const std::string& option : translated.nvrtc) texts.push_back(option.c_str());
  return from_nvrtc(forward::nvrtc::library()->compile(
      prog->program, static_cast<int>(texts.size()), texts.data()));
}

hiprtcResult hiprtcGetProgramLogSize(hiprtcProgram prog, size_t* logSizeRet) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (logSizeRet == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  *logSizeRet = log_of(*forward::nvrtc::library(), prog).size() + 1;
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetProgramLog(hiprtcProgram prog, char* log) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (log == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  const std::string text = log_of(*forward::nvrtc::library(), prog);
  std::memcpy(log, text.c_str(), text.size() + 1);
  return HIPRTC_SUCCESS;
}

hiprtcResult hiprtcGetCodeSize(hiprtcProgram prog, size_t* codeSizeRet) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (codeSizeRet == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  return from_nvrtc(forward::nvrtc::library()->cubin_size(prog->program, codeSizeRet));
}

hiprtcResult hiprtcGetCode(hiprtcProgram prog, char* code) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (code == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  return from_nvrtc(forward::nvrtc::library()->cubin(prog->program, code));
}

hiprtcResult hiprtcAddNameExpression(hiprtcProgram prog, const char* name_expression) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (name_expression == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  return from_nvrtc(forward::nvrtc::library()->add_name(prog->program, name_expression));
}

hiprtcResult hiprtcGetLoweredName(hiprtcProgram prog, const char* name_expression,
                                  const char** lowered_name) {
  if (prog == nullptr) return HIPRTC_ERROR_INVALID_PROGRAM;
  if (name_expression == nullptr || lowered_name == nullptr) return HIPRTC_ERROR_INVALID_INPUT;
  return from_nvrtc(
      forward::nvrtc::library()->lowered_name(prog->program, name_expression, lowered_name));
}
