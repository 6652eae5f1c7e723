// A recording stub of NVRTC for the tests. Its cubin is the text "CUBIN".
#include <cstring>

#include "recorder.h"

namespace {

constexpr char kLog[] = "stub log";
constexpr char kCubin[] = "CUBIN";

std::string& source() {
  static std::string* text = new std::string;
  return *text;
}

}  // namespace

STUB_EXPORT const char* stub_source() {
  return source().c_str();
}

STUB_EXPORT int nvrtcCreateProgram(void** program, const char* text, const char*, int headers,
                                   const char* const*, const char* const*) {
  source() = text;
  *program = &source();
  return stub::record("nvrtcCreateProgram", headers);
}

STUB_EXPORT int nvrtcDestroyProgram(void** program) {
  *program = nullptr;
  return stub::record("nvrtcDestroyProgram");
}

STUB_EXPORT int nvrtcCompileProgram(void*, int count, const char* const* options) {
  std::string line = "nvrtcCompileProgram";
  for (int i = 0; i < count; ++i) line += std::string(" ") + options[i];
  const int result = stub::record(line.c_str());
  const auto found = stub::state().results.find("nvrtcCompileProgram");
  return found == stub::state().results.end() ? result : found->second;
}

STUB_EXPORT int nvrtcGetProgramLogSize(void*, std::size_t* bytes) {
  *bytes = sizeof kLog;
  return 0;
}

STUB_EXPORT int nvrtcGetProgramLog(void*, char* text) {
  std::memcpy(text, kLog, sizeof kLog);
  return 0;
}

STUB_EXPORT int nvrtcGetCUBINSize(void*, std::size_t* bytes) {
  *bytes = sizeof kCubin;
  return stub::record("nvrtcGetCUBINSize");
}

STUB_EXPORT int nvrtcGetCUBIN(void*, char* image) {
  std::memcpy(image, kCubin, sizeof kCubin);
  return stub::record("nvrtcGetCUBIN");
}

STUB_EXPORT int nvrtcAddNameExpression(void*, const char*) {
  return stub::record("nvrtcAddNameExpression");
}

STUB_EXPORT int nvrtcGetLoweredName(void*, const char*, const char** lowered) {
  *lowered = "lowered";
  return stub::record("nvrtcGetLoweredName");
}
