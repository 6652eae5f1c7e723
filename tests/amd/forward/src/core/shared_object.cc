#include "core/shared_object.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

namespace forward {

SharedObject::SharedObject(const char* variable, const char* names) {
  const char* path = std::getenv(variable);
  std::string rest = path == nullptr ? names : path;
  while (handle_ == nullptr && !rest.empty()) {
    const std::size_t comma = rest.find(',');
    handle_ = dlopen(rest.substr(0, comma).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  if (handle_ == nullptr) {
    std::fprintf(stderr, "forward: cannot load '%s': %s; set %s to its path\n", names, dlerror(),
                 variable);
  }
}

void* SharedObject::symbol(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

}  // namespace forward
