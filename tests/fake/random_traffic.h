// Random traffic over a pair of channels that one thread drives.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "transport/transport.h"

namespace hetccl::fake {

using Bytes = std::vector<uint8_t>;

inline transport::Parcel parcel(Bytes& data, uint64_t sequence) {
  return {data.data(), data.size(), {77, sequence, 0, 0, {}}};
}

/// Sends so many messages each way, posted in random order; `length(random)` says how long each is.
/// `pair` has `channels` and `until`.
template <typename Pair, typename Length>
void exchange_randomly(Pair& pair, size_t messages, std::mt19937& random, const Length& length) {
  std::vector<Bytes> sent[2], received[2];
  for (size_t i = 0; i < messages; ++i) {
    for (int r = 0; r < 2; ++r) {
      const size_t bytes = length(random);
      sent[r].emplace_back(bytes, static_cast<uint8_t>(random()));
      received[r].emplace_back(bytes);
    }
  }
  size_t next[4] = {};
  pair.until([&] {
    const size_t what = random() % 4, rank = what % 2;
    if (const size_t i = next[what]; i < messages) {
      ++next[what];
      if (what < 2)
        pair.channels[rank]->post_send(parcel(sent[rank][i], i));
      else
        pair.channels[rank]->post_recv(parcel(received[1 - rank][i], i));
    }
    bool done = true;
    for (const auto& channel : pair.channels) {
      REQUIRE_MESSAGE(channel->status().ok(), channel->status().message());
      done =
          done && channel->sends_completed() == messages && channel->recvs_completed() == messages;
    }
    return done;
  });
  CHECK(received[0] == sent[0]);
  CHECK(received[1] == sent[1]);
}

}  // namespace hetccl::fake
