// The C API's runtimes (hetccl/runtime.h): checks arguments and returns the tables of src/runtime.
#include "hetccl/runtime.h"

#include "base/config.h"
#include "capi/process.h"
#include "runtime/load.h"

using hetccl::Config;
using hetccl::error;
using hetccl::ErrorCode;
using hetccl::Result;
using hetccl::Status;
using hetccl::capi::finished;
using hetccl::capi::null;

namespace {

namespace runtime = hetccl::runtime;

// Read once per process: a table needs no communicator.
const Result<Config>& settings() {
  static const auto* const config = [] {
    auto* const made = new Result<Config>(Config::from_environment());
    const auto job = hetccl::job_rank();
    if (made->ok()) (*made)->warn(job ? job->rank : -1);
    return made;
  }();
  return *config;
}

const char* text_of(const char* text) {
  return text == nullptr ? "" : text;
}

hetcclResult_t set_platform(const char* platform, const hetcclRuntime** table) {
  return hetcclRuntimeLoad(platform, nullptr, table);
}

hetcclResult_t set_platform_auto(const hetcclRuntime** table) {
  return hetcclRuntimeLoad(nullptr, nullptr, table);
}

constexpr runtime::OwnEntries kOwnEntries = {hetcclRuntimeGetAvailable, set_platform,
                                             set_platform_auto};

Result<const runtime::Table*> find(const hetcclRuntime* table) {
  if (table == nullptr) return null("table");
  const runtime::Table* found = runtime::find(table);
  if (found != nullptr) return found;
  return error(ErrorCode::InvalidArgument, "table is none of hetcclRuntimeLoad's");
}

}  // namespace

hetcclResult_t hetcclRuntimeLoad(const char* platform, const char* path,
                                 const hetcclRuntime** table) {
  return finished([&]() -> Status {
    if (table == nullptr) return null("table");
    *table = nullptr;
    HETCCL_TRY(settings().status());
    const Config& config = settings().value();
    runtime::Request request{text_of(platform), text_of(path), config.hip_library};
    if (request.platform.empty()) request.platform = config.runtime;
    HETCCL_ASSIGN(*table, runtime::load(request, kOwnEntries));
    return {};
  });
}

hetcclResult_t hetcclRuntimeGetAvailable(unsigned int* platforms) {
  return finished([&]() -> Status {
    if (platforms == nullptr) return null("platforms");
    HETCCL_TRY(settings().status());
    *platforms = runtime::available(settings().value().hip_library, kOwnEntries);
    return {};
  });
}

hetcclResult_t hetcclRuntimeGetEntry(const hetcclRuntime* table, int index,
                                     hetcclRuntimeEntry_t* entry) {
  return finished([&]() -> Status {
    if (entry == nullptr) return null("entry");
    HETCCL_ASSIGN(const runtime::Table* const found, find(table));
    if (index < 0 || index >= static_cast<int>(runtime::kEntries.size())) {
      return error(ErrorCode::InvalidArgument, "there is no entry %d: they are 0 to %zu", index,
                   runtime::kEntries.size() - 1);
    }
    const auto at = static_cast<size_t>(index);
    *entry = {runtime::kEntries.at(at).name.data(), found->symbols.at(at),
              found->available.at(at) ? 1 : 0};
    return {};
  });
}

hetcclResult_t hetcclRuntimeGetMissing(const hetcclRuntime* table, const char** names) {
  return finished([&]() -> Status {
    if (names == nullptr) return null("names");
    HETCCL_ASSIGN(const runtime::Table* const found, find(table));
    *names = found->missing.c_str();
    return {};
  });
}
