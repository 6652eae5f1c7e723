#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {
namespace {

// A compiler's words may be many pages.
constexpr size_t kMaxWords = 2000;

Status failure(const Compiler& compiler, int code, const std::string& what) {
  return error(Code::SystemError, "%s %s: %s: %s", compiler.name.c_str(), compiler.version.c_str(),
               what.c_str(), compiler.error_text(code));
}

std::string words_of(const Compiler& compiler, void* program) {
  size_t bytes = 0;
  if (compiler.log_bytes(program, &bytes) != 0 || bytes == 0) return "";
  std::string words(bytes, '\0');
  if (compiler.log(program, words.data()) != 0) return "";
  words.resize(std::min(words.find('\0'), std::min(bytes, kMaxWords)));
  return words;
}

// Frees its program.
class ProgramHandle {
 public:
  explicit ProgramHandle(const Compiler& compiler) : compiler_(compiler) {}
  ~ProgramHandle() {
    if (handle != nullptr) compiler_.destroy(&handle);
  }
  ProgramHandle(const ProgramHandle&) = delete;
  ProgramHandle& operator=(const ProgramHandle&) = delete;
  void* handle = nullptr;

 private:
  const Compiler& compiler_;
};

}  // namespace

Result<std::string> compile(const Compiler& compiler, std::string_view text,
                            const std::string& architecture, int part) {
  ProgramHandle program(compiler);
  const std::string whole(text);
  int code = compiler.create(&program.handle, whole.c_str(), "hetccl.cu");
  if (code != 0) return failure(compiler, code, "cannot begin");
  std::vector<std::string> options = compiler.options;
  options.push_back("--gpu-architecture=" + architecture);
  options.push_back("-DHETCCL_PART=" + std::to_string(part));
  std::vector<const char*> pointers;
  for (const auto& option : options) pointers.push_back(option.c_str());
  code = compiler.compile(program.handle, static_cast<int>(pointers.size()), pointers.data());
  if (code != 0) {
    return failure(compiler, code, "compiling for " + architecture)
        .with(words_of(compiler, program.handle));
  }
  size_t bytes = 0;
  code = compiler.code_bytes(program.handle, &bytes);
  if (code == 0 && bytes == 0) {
    return error(Code::SystemError, "%s made no code for %s", compiler.name.c_str(),
                 architecture.c_str());
  }
  std::string image(bytes, '\0');
  if (code == 0) code = compiler.code(program.handle, image.data());
  if (code != 0) return failure(compiler, code, "reading the code for " + architecture);
  return image;
}

}  // namespace hetccl::device::kernels
