// A fake adaptor: hetccl's own library for hosts, behind the table of hetccl/adaptor.h.
#pragma once

#include "hetccl/adaptor.h"

namespace hetccl::fake {

/// An adaptor for threads of this process. Lives as long as the process.
const hetcclAdaptorTable& host_adaptor();

/// A device whose calls may not be called.
hetcclDeviceAdaptor device_of_stubs(const char* name);

/// Returns a table with only that library.
hetcclAdaptorTable table_of(const hetcclLibraryAdaptor* library);

/// Calls fail from now on, or no more, as if the library had lost a rank.
void fail_host_adaptor(bool fails);

}  // namespace hetccl::fake
