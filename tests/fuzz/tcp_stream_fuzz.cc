// A channel of transport/tcp whose peer knows the secret and says anything, in any pieces.
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "fuzz/fuzz.h"
#include "transport/tcp/tcp_channel.h"

namespace hetccl {

using namespace transport;

namespace {

constexpr size_t kStreams = 2;
constexpr std::array<size_t, 4> kPosted = {100, 0, 5000, 1};

MessageInfo info(uint64_t number) {
  return {77, number, 0, 0, {}};
}

// An input is a list of (stream and whether a receive is posted first, length / 16, bytes).
void say(fuzz::Bytes& out, uint8_t stream, bool post, std::span<const uint8_t> bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const size_t n = std::min<size_t>(bytes.size() - done, 255 * 16);
    const size_t padded = (n + 15) / 16;
    out.push_back(static_cast<uint8_t>(stream | (post ? 2U : 0U)));
    out.push_back(static_cast<uint8_t>(padded));
    out.insert(out.end(), bytes.begin() + static_cast<ptrdiff_t>(done),
               bytes.begin() + static_cast<ptrdiff_t>(done + n));
    out.resize(out.size() + padded * 16 - n);
    done += n;
    post = false;
  }
}

fuzz::Bytes piece(uint64_t number, uint64_t offset, uint64_t bytes, uint64_t total) {
  fuzz::Bytes out(kHeaderBytes + bytes, 0x55);
  encode(Header{number, offset, bytes, total, info(number)}, out.data());
  return out;
}

void progress(tcp::Movers& movers) {
  for (int round = 0; round < 100 && movers.engine().progress(); ++round) {
  }
}

struct Peer {
  Peer() {
    std::vector<net::Wire> wires;
    for (Fd& end : far) {
      int fds[2];
      fuzz::require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0, "sockets");
      wires.emplace_back(Fd(fds[0]));
      end = Fd(fds[1]);
    }
    channel = tcp::TcpChannel::create(0, std::move(wires), {}, movers).value();
    for (const size_t bytes : kPosted) memory.emplace_back(bytes);
  }
  void post() {
    if (posted == memory.size()) return;
    fuzz::Bytes& into = memory[posted];
    channel->post_recv({into.data(), into.size(), info(posted)});
    ++posted;
  }
  std::shared_ptr<tcp::Movers> movers = tcp::Movers::create(0, std::chrono::seconds(5)).value();
  Fd far[kStreams];
  std::unique_ptr<tcp::TcpChannel> channel;
  std::vector<fuzz::Bytes> memory;
  size_t posted = 0;
};

}  // namespace

std::vector<fuzz::Bytes> fuzz::seeds() {
  std::vector<Bytes> seeds(3);
  say(seeds[0], 0, true, piece(0, 0, 96, 100));
  say(seeds[0], 1, true, piece(0, 96, 4, 100));
  say(seeds[1], 1, false, piece(0, 0, 100, 100));
  say(seeds[1], 0, true, piece(1, 0, 0, 0));
  say(seeds[1], 0, true, piece(2, 0, 2048, 5000));
  say(seeds[1], 1, true, piece(2, 2048, 2952, 5000));
  say(seeds[2], 0, true, Bytes(300, 0xff));
  return seeds;
}

}  // namespace hetccl

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hetccl;
  fuzz::Input input(data, size);
  Peer peer;
  while (!input.empty()) {
    const uint8_t what = input.byte();
    const auto bytes = input.take(size_t{input.byte()} * 16);
    if ((what & 2U) != 0) peer.post();
    (void)::send(peer.far[what % kStreams].get(), bytes.data(), bytes.size(),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    progress(*peer.movers);
    fuzz::require(peer.channel->recvs_completed() <= peer.posted, "only what was posted completes");
  }
  for (Fd& end : peer.far) end.reset();
  progress(*peer.movers);
  peer.post();
  progress(*peer.movers);
  const bool failed = !peer.channel->status().ok();
  peer.channel->close();
  fuzz::require(!peer.channel->status().ok(), "a closed channel says so");
  fuzz::require(failed || peer.posted > 0, "an end of all streams is seen");
  return 0;
}
