#include "fake/host_adaptor.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <vector>

#include "ccl/host/host_library.h"
#include "host/task_queue.h"

namespace hetccl::fake {
namespace {

constexpr int kBroken = 7;
std::atomic<bool> fails{false};

ccl::Library& library() {
  static const auto made = ccl::make_host_library();
  return *made;
}

struct Request {
  uint64_t finished;  // tasks of the queue, when it is complete
};

struct Member {
  TaskQueue queue;
  std::unique_ptr<ccl::Communicator> communicator;
  std::list<Request> requests;  // under way
};

std::vector<ccl::Shard> shards_of(const hetcclLibraryWork& work) {
  std::vector<ccl::Shard> shards;
  for (size_t p = 0; p < work.n_pieces; ++p) {
    const hetcclLibraryPiece& piece = work.pieces[p];
    shards.push_back({piece.root, piece.send, piece.recv, piece.count, piece.receiver});
  }
  return shards;
}

std::vector<ccl::Transfer> transfers_of(const hetcclLibraryWork& work) {
  std::vector<ccl::Transfer> transfers;
  for (size_t m = 0; m < work.n_messages; ++m) {
    const hetcclLibraryMessage& message = work.messages[m];
    transfers.push_back({message.peer, message.sends == 1, message.data, message.count});
  }
  return transfers;
}

Status begin(Member& member, const hetcclLibraryWork& work) {
  const auto type = static_cast<DataType>(work.type);
  const Reducer how{static_cast<RedOp>(work.op)};
  const auto shards = shards_of(work);
  ccl::Communicator& comm = *member.communicator;
  switch (work.call) {
    case hetcclLibraryAllReduce:
      return comm.all_reduce(shards[0].send, shards[0].recv, shards[0].count, type, how,
                             &member.queue);
    case hetcclLibraryReduce:
      return comm.reduce(shards, type, how, &member.queue);
    case hetcclLibraryBroadcast:
      return comm.broadcast(shards, type, &member.queue);
    case hetcclLibraryExchange:
      return comm.exchange(transfers_of(work), type, &member.queue);
    case hetcclLibraryBarrier:
      return comm.barrier(&member.queue);
  }
  return error(ErrorCode::InvalidArgument, "no call");
}

const char* error_text(int code) {
  return code == kBroken ? "it is broken" : "an error of the fake";
}

int make_id(int n_ranks, void* id) {
  const auto made = library().unique_id(n_ranks, 5000);
  if (!made.ok()) return 1;
  std::memcpy(id, made.value().bytes, sizeof made.value().bytes);
  return 0;
}

int init(const void* bytes, int n_ranks, int rank, int64_t timeout_ms, void** communicator) {
  ccl::UniqueId id;
  std::memcpy(id.bytes, bytes, sizeof id.bytes);
  auto member = std::make_unique<Member>();
  auto made = library().init(id, n_ranks, rank, nullptr, timeout_ms);
  if (!made.ok()) return 1;
  member->communicator = std::move(made).value();
  *communicator = member.release();
  return 0;
}

int start(void* communicator, const hetcclLibraryWork* work, void** request) {
  auto* member = static_cast<Member*>(communicator);
  if (fails) return kBroken;
  if (work->size != sizeof *work || !begin(*member, *work).ok()) return 1;
  *request = &member->requests.emplace_back(Request{member->queue.pushed()});
  return 0;
}

int test(void* communicator, void* request, int* done) {
  auto* member = static_cast<Member*>(communicator);
  auto* mine = static_cast<Request*>(request);
  member->queue.poll();
  if (fails || !member->communicator->async_error().ok()) return kBroken;
  *done = member->queue.finished() >= mine->finished ? 1 : 0;
  if (*done == 1) member->requests.remove_if([mine](const Request& one) { return &one == mine; });
  return 0;
}

void destroy(void* communicator) {
  auto* member = static_cast<Member*>(communicator);
  member->communicator.reset();
  delete member;
}

// Lacks some operators of one type, as an adaptor may.
int reduces(hetcclDataType_t type, hetcclRedOp_t) {
  return type == hetcclFloat16 ? 0 : 1;
}

}  // namespace

const hetcclAdaptorTable& host_adaptor() {
  static const hetcclLibraryAdaptor made = {
      .size = sizeof made,
      .name = "fake",
      .version = "1",
      .capabilities = HETCCL_LIBRARY_EXCHANGES | HETCCL_LIBRARY_SENDS,
      .error_text = error_text,
      .score = [] { return 2 * HETCCL_OWN_SCORE; },
      .reduces = reduces,
      .make_id = make_id,
      .init = init,
      .start = start,
      .test = test,
      .destroy = destroy,
      .device = nullptr,
      .abort = nullptr,
  };
  static const hetcclAdaptorTable table = table_of(&made);
  return table;
}

hetcclDeviceAdaptor device_of_stubs(const char* name) {
  hetcclDeviceAdaptor device{};
  void (*const stub)() = [] { std::abort(); };
  for (size_t at = offsetof(hetcclDeviceAdaptor, error_text); at < sizeof device; at += sizeof stub)
    std::memcpy(reinterpret_cast<char*>(&device) + at, &stub, sizeof stub);
  device.size = sizeof device;
  device.name = name;
  device.version = "1";
  return device;
}

hetcclAdaptorTable table_of(const hetcclLibraryAdaptor* library) {
  hetcclAdaptorTable table{};
  table.size = sizeof table;
  table.abi = HETCCL_ADAPTOR_ABI;
  table.library = library;
  return table;
}

void fail_host_adaptor(bool now) {
  fails = now;
}

}  // namespace hetccl::fake
