// Blocks from endpoint to endpoint: values, notifications, and many peers.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>

#include "onesided/pair.h"

namespace hetccl::onesided {

namespace {

const std::vector<std::pair<const char*, std::pair<Kind, Kind>>> kPairs = {
    {"one host", {{false, "a"}, {false, "a"}}},
    {"two hosts", {{false, "a"}, {false, "b"}}},
    {"two hosts, encrypted", {{false, "a", true}, {false, "b", true}}},
    {"two hosts, no lists", {{.host = "a", .by_adaptor = true}, {.host = "b", .by_adaptor = true}}},
    {"a device and a host", {{true, "a"}, {false, "b"}}},
    {"two devices of one host", {{true, "a", false, 3}, {true, "a", false, 4}}},
    {"two devices of two hosts", {{true, "a", false, 3}, {true, "b", false, 4}}},
    {"a host and a device of it", {{false, "a"}, {true, "a", false, 5}}},
};

// Disjoint blocks of two memories, in any order, some of them neighbours at both ends.
std::vector<Block> random_blocks(std::mt19937_64& random, const End::Memory& local,
                                 const End::Memory& remote, size_t longest) {
  std::vector<Block> blocks;
  size_t at = 0, there = 0;
  for (;;) {
    const size_t bytes = 1 + random() % longest;
    if (at + bytes > local.bytes || there + bytes > remote.bytes) break;
    blocks.push_back({local.region, at, remote.region, there, bytes});
    at += bytes;
    there += bytes;
    if (random() % 2 == 0) at += random() % 100;
    if (random() % 2 == 0) there += random() % 100;
  }
  std::shuffle(blocks.begin(), blocks.end(), random);
  return blocks;
}

void copy(const std::vector<Block>& blocks, bool puts, std::vector<std::byte>& local,
          std::vector<std::byte>& remote) {
  for (const Block& block : blocks) {
    std::byte* const here = local.data() + block.local_offset;
    std::byte* const there = remote.data() + block.remote_offset;
    std::memcpy(puts ? there : here, puts ? here : there, block.bytes);
  }
}

}  // namespace

TEST_CASE("blocks land where they belong, by put and by get, from both ends at once") {
  for (const auto& [text, kinds] : kPairs) {
    CAPTURE(text);
    End ends[] = {{"prefill", kinds.first}, {"decode", kinds.second}};
    const uint64_t there = connect(ends[0], ends[1]);
    uint64_t back = 0;
    while (back == 0) {  // the other end has connected at about the same time
      for (const PeerInfo& info : ends[1]->peers()) back = info.number;
    }
    const uint64_t peers[] = {there, back};
    std::mt19937_64 random(11);
    struct Job {
      size_t end;
      bool puts;
      End::Memory local, remote;
      std::vector<std::byte> local_expected, remote_expected;
      std::shared_ptr<Transfer> transfer;
    };
    std::vector<Job> jobs;
    for (size_t i = 0; i < 16; ++i) {
      const size_t end = random() % 2;
      const size_t bytes = i % 8 == 7 ? 5'000'000 : 1 + random() % 200'000;
      Job job{end, random() % 2 == 0, {}, {}, pattern(bytes, i), pattern(bytes + 500, i + 100), {}};
      job.local = ends[end].add(job.local_expected);
      job.remote = ends[1 - end].add(job.remote_expected);
      const size_t longest = i % 8 == 7 ? 4'500'000 : 1 + random() % 40'000;
      const auto blocks = random_blocks(random, job.local, job.remote, longest);
      copy(blocks, job.puts, job.local_expected, job.remote_expected);
      job.transfer = ends[end].begin(peers[end], job.puts, blocks);
      jobs.push_back(std::move(job));
    }
    for (const Job& job : jobs) {
      const Status status = ends[job.end].wait(*job.transfer);
      CHECK_MESSAGE(status.ok(), status.message());
      CHECK(ends[job.end].read(job.local) == job.local_expected);
      CHECK(ends[1 - job.end].read(job.remote) == job.remote_expected);
    }
    const LinkStatistics counts = ends[0]->peer(there).value().statistics;
    CHECK(counts.failed == 0);
    CHECK(counts.under_way == 0);
  }
}

TEST_CASE("a few bytes land in their places, and those that are refused do not") {
  for (const auto& [text, kinds] : kPairs) {
    CAPTURE(text);
    End prefill("prefill", kinds.first), decode("decode", kinds.second);
    const uint64_t peer = connect(prefill, decode);
    for (const bool puts : {true, false}) {
      for (const size_t bytes : {1, 8, 1000, 4096, 4097}) {
        const size_t each = bytes / 7 + 1;
        auto here = pattern(20'000, bytes), there = pattern(20'000, bytes + 1);
        const auto local = prefill.add(here), remote = decode.add(there);
        std::vector<Block> blocks;
        for (size_t at = 0; at < bytes; at += each) {
          const size_t length = std::min(each, bytes - at);
          blocks.push_back({local.region, 2 * at, remote.region, 10'000 - 2 * at, length});
        }
        copy(blocks, puts, here, there);
        const Status moved = prefill.wait(*prefill.begin(peer, puts, blocks));
        CHECK_MESSAGE(moved.ok(), moved.message());
        blocks.push_back({local.region, 0, remote.region, 19'999, 2});
        const Status refused = prefill.wait(*prefill.begin(peer, puts, {blocks.back()}));
        CHECK(refused.code() == ErrorCode::InvalidArgument);
        CHECK(prefill.read(local) == here);
        CHECK(decode.read(remote) == there);
      }
    }
  }
}

TEST_CASE("short blocks of hosts share messages, and are not copied into pinned memory") {
  for (const char* host : {"a", "b"}) {
    CAPTURE(host);
    End prefill("prefill", {false, "a"}), decode("decode", {false, host});
    const uint64_t peer = connect(prefill, decode);
    constexpr size_t kBlocks = 200, kBytes = 1000;
    const auto content = pattern(2 * kBlocks * kBytes, 1);
    const auto source = prefill.add(content), target = decode.add(pattern(content.size(), 2));
    std::vector<Block> blocks;
    for (size_t i = 0; i < kBlocks; ++i)
      blocks.push_back({source.region, 2 * i * kBytes, target.region, i * kBytes, kBytes});
    const auto sent = [&] {
      uint64_t bytes = 0;
      for (const auto& one : prefill.runtime().listening()) bytes += one.transport->bytes_sent();
      return bytes;
    };
    const uint64_t before = sent();
    CHECK(prefill.wait(*prefill.begin(peer, true, blocks)).ok());
    const uint64_t head = 40 * kBlocks + 2000;  // 24 bytes of the frame name a block
    CHECK(sent() - before >= kBlocks * kBytes);
    CHECK(sent() - before < kBlocks * kBytes + head);
    const auto now = decode.read(target);
    for (size_t i = 0; i < kBlocks; ++i)
      CHECK(std::memcmp(&now[i * kBytes], &content[2 * i * kBytes], kBytes) == 0);
    CHECK(prefill->pinned_bytes() == 0);
    CHECK(decode->pinned_bytes() == 0);
  }
}

TEST_CASE("a notification comes after the bytes that it is of") {
  for (const auto& [text, kinds] : kPairs) {
    CAPTURE(text);
    End prefill("prefill", kinds.first), decode("decode", kinds.second);
    const uint64_t peer = connect(prefill, decode);
    const auto content = pattern(1'200'000, 5);
    const auto source = prefill.add(content);
    const auto target = decode.add(pattern(1'200'000, 6));
    const auto put = prefill.begin(peer, true, {{source.region, 0, target.region, 0, 1'200'000}},
                                   Bytes{'p', 'u', 't'});
    auto letter = decode->take_notification(soon()).value();
    REQUIRE(letter.has_value());
    CHECK(letter->bytes == Bytes{'p', 'u', 't'});
    CHECK(decode.read(target) == content);
    CHECK(prefill.wait(*put).ok());
    CHECK(decode->peer(letter->peer).value().name == "prefill");

    const auto get = prefill.begin(peer, false, {}, Bytes{'g'});  // nothing but the notification
    CHECK(prefill.wait(*get).ok());
    letter = decode->take_notification(soon()).value();
    REQUIRE(letter.has_value());
    CHECK(letter->bytes == Bytes{'g'});

    CHECK(prefill->notify(peer, {}).ok());
    letter = decode->take_notification(soon()).value();
    REQUIRE(letter.has_value());
    CHECK(letter->bytes.empty());
  }
}

TEST_CASE("a transfer begins after what its stream holds, and holds up no other") {
  for (const char* host : {"a", "b"}) {
    CAPTURE(host);
    End prefill("prefill", {true, "a"}), decode("decode", {false, host});
    const uint64_t peer = connect(prefill, decode);
    const auto late = pattern(300'000, 7);
    const auto source = prefill.add(pattern(300'000, 1)), later = prefill.add(late);
    const auto target = decode.add(pattern(300'000, 2)), other = decode.add(pattern(300'000, 3));
    fake::FakeDevice& device = prefill.device();
    const auto stream = device.create_stream().value();
    auto* const flag =
        static_cast<device::Flag*>(device.allocate_pinned(sizeof(device::Flag)).value());
    CHECK(device.wait_flag(*stream, *flag, 1).ok());
    CHECK(device.copy(*stream, source.data, later.data, 300'000).ok());
    const auto held = prefill.begin(peer, true, {{source.region, 0, target.region, 0, 300'000}},
                                    Bytes{1}, 0, stream.get());
    const auto free =
        prefill.begin(peer, true, {{later.region, 0, other.region, 0, 300'000}}, Bytes{2});
    CHECK(prefill.wait(*free).ok());
    CHECK(decode->take_notification(soon()).value()->bytes == Bytes{2});
    CHECK_FALSE(held->done());
    const auto dropped =
        prefill.begin(peer, true, {{source.region, 0, other.region, 0, 100}}, {}, 0, stream.get());
    prefill->cancel(peer, *dropped, "nobody wants it");
    CHECK(prefill.wait(*dropped).code() == ErrorCode::Aborted);
    flag->word.store(1, std::memory_order_release);
    CHECK(prefill.wait(*held).ok());
    CHECK(decode.read(target) == late);
    CHECK(device.synchronize(fake::kHang));
    device.free_pinned(flag);
    device.set_capturing(true);
    const auto list = prefill->prepare(std::vector<Block>{{source.region, 0, target.region, 0, 9}});
    CHECK(prefill->begin(peer, {true, list.value(), {}, 0, stream->native()}).status().code() ==
          ErrorCode::InvalidUsage);
    device.set_capturing(false);
  }
}

TEST_CASE("what was said before an endpoint leaves arrives") {
  for (const char* host : {"a", "b"}) {
    CAPTURE(host);
    End decode("decode", {false, "a"});
    {
      End prefill("prefill", {false, host});
      const uint64_t peer = connect(prefill, decode);
      for (uint8_t i = 0; i < 100; ++i) CHECK(prefill->notify(peer, {i}).ok());
    }
    for (uint8_t i = 0; i < 100; ++i) {
      const auto letter = decode->take_notification(soon()).value();
      REQUIRE(letter.has_value());
      CHECK(letter->bytes == Bytes{i});
    }
  }
}

TEST_CASE("a hook is called once the transfer is done, or at once") {
  End prefill("prefill", {false, "a"}), decode("decode", {false, "a"});
  const uint64_t peer = connect(prefill, decode);
  const auto source = prefill.add(pattern(100, 1)), target = decode.add(pattern(100, 2));
  const std::vector<Block> blocks = {{source.region, 0, target.region, 0, 100}};
  std::atomic<int> calls{0};
  const auto put = prefill.begin(peer, true, blocks);
  put->when_done([&](const Status& status) { calls += status.ok() ? 1 : 100; });
  CHECK(prefill.wait(*put).ok());
  while (calls == 0) std::this_thread::yield();
  put->when_done([&](const Status& status) { calls += status.ok() ? 1 : 100; });
  CHECK(calls == 2);
}

TEST_CASE("many endpoints connect to many, and leave") {
  constexpr size_t kEach = 3;
  std::deque<End> prefills, decodes;
  for (size_t i = 0; i < kEach; ++i) {
    prefills.emplace_back(format("prefill-%zu", i), Kind{false, format("a%zu", i)});
    decodes.emplace_back(format("decode-%zu", i), Kind{false, format("a%zu", i)});
  }
  std::vector<std::vector<End::Memory>> targets(kEach);
  for (size_t d = 0; d < kEach; ++d) {
    for (size_t p = 0; p < kEach; ++p) targets[d].push_back(decodes[d].add(pattern(70'000, 0)));
  }
  comm::on_all_ranks(static_cast<int>(kEach), [&](int thread) {
    const auto p = static_cast<size_t>(thread);
    const auto source = prefills[p].add(pattern(70'000, p + 1));
    for (size_t d = 0; d < kEach; ++d) {
      const uint64_t peer = connect(prefills[p], decodes[d]);
      const auto put = prefills[p].begin(
          peer, true, {{source.region, 0, targets[d][p].region, 0, 70'000}}, Bytes{1});
      CHECK(prefills[p].wait(*put).ok());
      CHECK(prefills[p]->disconnect(peer).ok());
      CHECK(prefills[p]->peer(peer).status().code() == ErrorCode::InvalidArgument);
    }
  });
  for (size_t d = 0; d < kEach; ++d) {
    for (size_t p = 0; p < kEach; ++p) {
      CHECK(decodes[d]->take_notification(soon()).value().has_value());
      CHECK(decodes[d].read(targets[d][p]) == pattern(70'000, p + 1));
    }
    // Those that have left are known by name and reason.
    for (const PeerInfo& info : decodes[d]->peers()) {
      while (decodes[d]->peer(info.number).value().gone.ok()) std::this_thread::yield();
      CHECK(decodes[d]->peer(info.number).value().gone.message().find("prefill-") !=
            std::string::npos);
    }
  }
}

TEST_CASE("blocks that follow each other at both ends are one") {
  Regions regions;
  std::vector<std::byte> memory(1000);
  auto made = std::make_shared<Region>();
  made->data = memory.data();
  made->bytes = memory.size();
  const uint64_t region = regions.add(made).value();
  const std::vector<Block> blocks = {{region, 0, 7, 50, 10},  {region, 10, 7, 60, 10},
                                     {region, 20, 7, 80, 10}, {region, 40, 7, 90, 0},
                                     {region, 30, 7, 90, 10}, {region, 50, 8, 100, 10}};
  const auto list = BlockList::make(regions, blocks).value();
  REQUIRE(list->parts().size() == 3);
  CHECK(list->parts()[0].bytes == 20);
  CHECK(list->parts()[1].bytes == 20);
  CHECK(list->bytes() == 50);
  CHECK(list->regions() == std::vector<uint64_t>{region});
}

}  // namespace hetccl::onesided
