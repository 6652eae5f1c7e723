// A fake transport as an adaptor: channels between transports of this process. A transport's
// address names it; a channel is two bounded pipes.
#pragma once

#include <cstddef>

#include "hetccl/adaptor.h"

namespace hetccl::fake {

/// Faults of the transport from now on.
struct TransportFaults {
  size_t address_bytes = 0;    ///< as `open` tells it; 0: the truth
  bool opens_nothing = false;  ///< and says that it has
  bool connects_nothing = false;
  bool hangs = false;          ///< `connect` waits whatever hetccl says, for 600 ms
  bool throws = false;         ///< `connect`
  bool takes_anybody = false;  ///< any two calls of `connect` meet, whatever their ids
  bool overcounts = false;     ///< `completed` counts more than was posted
  bool spoils = false;         ///< a byte of each message of 96 bytes
  bool no_descriptor = false;
  bool fails = false;  ///< `progress`
};
void set_transport_faults(const TransportFaults& faults);

/// "fake", version "1", of one host and of several. Lives as long as the process.
const hetcclAdaptorTable& transport_adaptor();

/// Return how many transports and channels are open.
int open_transports();
int open_channels();

}  // namespace hetccl::fake
