#include "device/kernels/build.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "base/thread.h"

namespace hetccl::device::kernels {
namespace {

// Uses one thread for each core: a part takes a core for a second.
Result<Images> compile_all(const Compiler& compiler, const std::string& architecture) {
  Images images(kParts);
  std::atomic<int> next{0};
  std::mutex mutex;
  Status failure;
  bool failed = false;  // out of memory
  const auto work = [&] {
    for (int part = next++; part < kParts; part = next++) {
      auto image = compile(compiler, source(), architecture, part);
      std::lock_guard lock(mutex);
      if (image.ok())
        images[static_cast<size_t>(part)] = std::move(image).value();
      else
        failure = image.status();
    }
  };
  const auto work_or_fail = [&] {
    try {
      work();
    } catch (...) {
      std::lock_guard lock(mutex);
      failed = true;
    }
  };
  const int cores = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kParts);
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(cores));
  for (int i = 1; i < cores; ++i) {
    auto thread = start_thread("hetccl-kernels", std::ref(work_or_fail));
    if (!thread.ok()) break;  // the threads so far do all parts
    threads.push_back(std::move(thread).value());
  }
  work_or_fail();
  for (auto& thread : threads) thread.join();
  if (failed) return error(ErrorCode::SystemError, "compiling kernels: out of memory");
  HETCCL_TRY(std::move(failure));
  return images;
}

}  // namespace

std::string key_of(const Compiler& compiler, const std::string& architecture) {
  std::string key = architecture + " " + compiler.name + " " + compiler.version;
  for (const auto& option : compiler.options) key += " " + option;
  return key + " " + digest_of(source());
}

Result<Images> build(const Compiler& compiler, const std::string& architecture, const Cache& cache,
                     const Log& log) {
  const std::string key = key_of(compiler, architecture);
  auto cached = cache.read(key);
  if (cached.ok() && cached->size() == kParts) return cached;
  log.debug("compiling kernels for %s: %s", architecture.c_str(),
            cached.status().message().c_str());
  HETCCL_ASSIGN(Images images, compile_all(compiler, architecture));
  if (const Status written = cache.write(key, images); !written.ok())
    log.info("compiled kernels are not kept: %s", written.message().c_str());
  return images;
}

}  // namespace hetccl::device::kernels
