// The part of the fake of libibverbs that moves bytes: queue pairs, completion queues, keys.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

#include "fake/fake_verbs.h"

namespace hetccl::fake::rdma {

namespace abi = transport::verbs::abi;

struct Queue;
struct Channel : abi::CompletionChannel {
  std::deque<Queue*> events;
};
struct Queue : abi::Cq {
  struct Entry {
    abi::Wc completion;
    bool is_send = false;
    uint32_t late = 0;
  };
  std::deque<Entry> entries;
  size_t room = 0;
  bool armed = false;
  uint32_t unacknowledged = 0;
};
/// A request that is posted and has not reached the other end.
struct Request {
  abi::SendWr order;
  std::vector<abi::Sge> parts;
  std::vector<std::byte> inlined;
  uint32_t late = 0;
};
/// The mapped pages of a dma-buf, and the writes that wait to be seen there.
struct DmaBuf {
  std::byte* mapped = nullptr;
  size_t mapped_bytes = 0, offset = 0;
  std::vector<std::pair<std::byte*, std::vector<std::byte>>> held;
};
struct Pair : abi::Qp {
  std::deque<std::pair<uint64_t, abi::Sge>> receives;
  std::deque<Request> requests;
  abi::QpAttr attr{};  // as set so far
  abi::QpLimits limits{};
  uint32_t outstanding = 0, sent = 0;
  int reads = 0;  // that may be under way
};
struct OpenDevice : abi::Context {
  std::string name;
  int index = 0;
  std::deque<abi::AsyncEvent> async;
  uint32_t unacknowledged = 0;
};

struct State {
  std::mutex mutex;
  VerbsFabric fabric;
  std::mt19937 random;
  std::vector<OpenDevice*> opened;
  std::map<uint32_t, Pair*> pairs;
  std::vector<Queue*> queues;
  std::map<uint32_t, abi::Mr*> regions;  // by key
  std::map<abi::Mr*, int> access;
  std::map<abi::Mr*, DmaBuf> dmabufs;
  std::map<abi::Pd*, size_t> locked;  // bytes
  uint32_t next = 100;
};
State& state();
using Lock = std::lock_guard<std::mutex>;

uint16_t lid_of(const OpenDevice& device, int port);
abi::Gid gid_of(const OpenDevice& device, int port, uint32_t index);
void add_event(OpenDevice& device, int type, void* element);

int post_send(abi::Qp* qp, abi::SendWr* request, abi::SendWr** bad);
int post_recv(abi::Qp* qp, abi::RecvWr* request, abi::RecvWr** bad);
int poll_cq(abi::Cq* cq, int n, abi::Wc* into);
int req_notify_cq(abi::Cq* cq, int solicited_only);
int modify_qp(abi::Qp* qp, abi::QpAttr* attr, int mask);

}  // namespace hetccl::fake::rdma
