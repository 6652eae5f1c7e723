// Facts about pinned host memory that hipHostMalloc allocated.
#pragma once

namespace forward {

/// Sets `*flags` to the HIP flags of the allocation at `pointer`; returns false if there is none.
[[nodiscard]] bool host_allocation_flags(void* pointer, unsigned* flags);

}  // namespace forward
