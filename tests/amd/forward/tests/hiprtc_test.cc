// hipRTC: options, prelude and results, over a stub of NVRTC.
#include <doctest/doctest.h>
#include <hip/hiprtc.h>

#include <string>
#include <vector>

#include "support.h"

extern "C" unsigned long forward_hiprtc_rejections();

namespace {

hiprtcProgram create(const char* text) {
  hiprtcProgram program = nullptr;
  REQUIRE(hiprtcCreateProgram(&program, text, "test.hip", 0, nullptr, nullptr) == HIPRTC_SUCCESS);
  return program;
}

hiprtcResult compile(hiprtcProgram program, std::vector<const char*> options) {
  (void)test::nvrtc().take();
  return hiprtcCompileProgram(program, static_cast<int>(options.size()), options.data());
}

std::string log_of(hiprtcProgram program) {
  std::size_t bytes = 0;
  REQUIRE(hiprtcGetProgramLogSize(program, &bytes) == HIPRTC_SUCCESS);
  std::string text(bytes, '\0');
  REQUIRE(hiprtcGetProgramLog(program, text.data()) == HIPRTC_SUCCESS);
  return text.c_str();
}

}  // namespace

TEST_CASE("the AMD architecture becomes the GPU's own") {
  hiprtcProgram program = create("text");
  CHECK(compile(program, {"--offload-arch=gfx1100", "-DX=1", "-O3", "-std=c++17"}) ==
        HIPRTC_SUCCESS);
  CHECK(test::nvrtc().last() ==
        "nvrtcCompileProgram --gpu-architecture=sm_90 -DX=1 --std=c++17 -D__gfx1100__=1 "
        "-D__GFX11__=1 "
        "-D__FORWARD_WAVE=32");
  CHECK(compile(program, {"--gpu-architecture=gfx942:sramecc+:xnack-", "-D", "Y"}) ==
        HIPRTC_SUCCESS);
  CHECK(test::nvrtc().last() ==
        "nvrtcCompileProgram --gpu-architecture=sm_90 -DY -D__gfx942__=1 -D__GFX9__=1 "
        "-D__FORWARD_WAVE=64");
  CHECK(hiprtcDestroyProgram(&program) == HIPRTC_SUCCESS);
  CHECK(program == nullptr);
}

TEST_CASE("NVIDIA's options and unknown architectures are rejected") {
  hiprtcProgram program = create("text");
  struct Wrong {
    const char* option;
    hiprtcResult result;
  };
  for (const Wrong& wrong : {Wrong{"--gpu-architecture=sm_90", HIPRTC_ERROR_INVALID_OPTION},
                             Wrong{"--offload-arch=gfx9999", HIPRTC_ERROR_INVALID_OPTION},
                             Wrong{"--gpu-architecture=compute_90", HIPRTC_ERROR_INVALID_OPTION},
                             Wrong{"--use_fast_math", HIPRTC_ERROR_COMPILATION},
                             Wrong{"-arch=sm_90", HIPRTC_ERROR_COMPILATION},
                             Wrong{"--offload-arch", HIPRTC_ERROR_COMPILATION},
                             Wrong{"--fmad=false", HIPRTC_ERROR_COMPILATION}}) {
    INFO(std::string(wrong.option));
    const unsigned long before = forward_hiprtc_rejections();
    CHECK(compile(program, {wrong.option}) == wrong.result);
    CHECK(forward_hiprtc_rejections() == before + 1);
    CHECK(test::nvrtc().take().empty());
    CHECK(log_of(program).find(wrong.option) != std::string::npos);
  }
}

TEST_CASE("the prelude precedes the program and takes NVRTC's macro away") {
  (void)create("the user's text");
  const auto source = reinterpret_cast<const char* (*)()>(test::nvrtc().symbol("stub_source"));
  const std::string text = source();
  CHECK(text.find("#undef __CUDACC_RTC__") < text.find("#define __HIPCC_RTC__ 1"));
  CHECK(text.ends_with("\n#line 1\nthe user's text"));
}

TEST_CASE("results and the code object pass through") {
  hiprtcProgram program = create("text");
  test::nvrtc().set("nvrtcCompileProgram", 6);
  CHECK(compile(program, {}) == HIPRTC_ERROR_COMPILATION);
  test::nvrtc().set("nvrtcCompileProgram", 12);
  CHECK(compile(program, {}) == HIPRTC_ERROR_INTERNAL_ERROR);
  test::nvrtc().set("nvrtcCompileProgram", 0);
  CHECK(compile(program, {}) == HIPRTC_SUCCESS);
  CHECK(log_of(program) == "stub log");
  std::size_t bytes = 0;
  CHECK(hiprtcGetCodeSize(program, &bytes) == HIPRTC_SUCCESS);
  std::string code(bytes, '\0');
  CHECK(hiprtcGetCode(program, code.data()) == HIPRTC_SUCCESS);
  CHECK(std::string(code.c_str()) == "CUBIN");
  const char* lowered = nullptr;
  CHECK(hiprtcAddNameExpression(program, "kernel<int>") == HIPRTC_SUCCESS);
  CHECK(hiprtcGetLoweredName(program, "kernel<int>", &lowered) == HIPRTC_SUCCESS);
  CHECK(std::string(lowered) == "lowered");
  int major = 0;
  int minor = 0;
  CHECK(hiprtcVersion(&major, &minor) == HIPRTC_SUCCESS);
  CHECK(major == 9);
  CHECK(hiprtcCompileProgram(nullptr, 0, nullptr) == HIPRTC_ERROR_INVALID_PROGRAM);
}
