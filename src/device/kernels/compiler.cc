#include "device/kernels/compiler.h"

namespace hetccl::device::kernels {
namespace {

// Truncate the compiler's output, which may be pages.
constexpr size_t kMaxWords = 2000;

Status failure(const Compiler& compiler, int code, const std::string& what) {
  return error(ErrorCode::SystemError, "%s %s: %s: %s", compiler.name.c_str(),
               compiler.version.c_str(), what.c_str(), compiler.error_text(code));
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

Result<std::shared_ptr<Compiler>> find_compiler(DynLib library, const std::string& prefix,
                                                const std::string& code) {
  auto compiler = std::make_shared<Compiler>();
  compiler->name = prefix;
  compiler->path = library.path();
  std::function<int(int*, int*)> version;
  std::function<int(void**, const char*, const char*, int, const char* const*, const char* const*)>
      create;
  Symbols symbols(library);
  const auto find = [&](auto& call, const std::string& name) {
    symbols.find(call, (prefix + name).c_str());
  };
  find(version, "Version");
  find(create, "CreateProgram");
  find(compiler->compile, "CompileProgram");
  find(compiler->log_bytes, "GetProgramLogSize");
  find(compiler->log, "GetProgramLog");
  find(compiler->code_bytes, "Get" + code + "Size");
  find(compiler->code, "Get" + code);
  find(compiler->destroy, "DestroyProgram");
  find(compiler->error_text, "GetErrorString");
  if (!symbols.missing().empty()) {
    return error(ErrorCode::Unsupported, "%s is no %s, or too old: it lacks %s",
                 compiler->path.c_str(), prefix.c_str(), symbols.missing().c_str());
  }
  compiler->create = [create](void** program, const char* source, const char* file) {
    return create(program, source, file, 0, nullptr, nullptr);
  };
  int major = 0, minor = 0;
  if (version(&major, &minor) == 0) compiler->version = format("%d.%d", major, minor);
  compiler->libraries.push_back(std::move(library));
  return compiler;
}

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
    return error(ErrorCode::SystemError, "%s made no code for %s", compiler.name.c_str(),
                 architecture.c_str());
  }
  std::string image(bytes, '\0');
  if (code == 0) code = compiler.code(program.handle, image.data());
  if (code != 0) return failure(compiler, code, "reading the code for " + architecture);
  return image;
}

}  // namespace hetccl::device::kernels
