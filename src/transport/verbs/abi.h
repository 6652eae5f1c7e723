// The part of libibverbs' binary interface that this transport uses, declared here so that building
// needs nothing of rdma-core. Names follow <infiniband/verbs.h> without their prefix;
// tests/rdma/abi_test.cc compares every size, offset and number with that header.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace hetccl::transport::verbs::abi {

struct Context;
struct Cq;
struct Qp;

union Gid {
  uint8_t raw[16];
  uint64_t align[2];
};

enum : uint32_t { kGidIb, kGidRoceV1, kGidRoceV2 };
struct GidEntry {
  Gid gid;
  uint32_t index, port, type, interface_index;
};

/// struct ibv_device: only the name and the folder in sysfs are read.
struct Device {
  void* ops[2];
  int node_type, transport_type;
  char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

enum : int { kPortDown = 1, kPortInit, kPortArmed, kPortActive };
enum : uint8_t { kLinkUnspecified, kLinkInfiniBand, kLinkEthernet };
struct PortAttr {
  int state, max_mtu, active_mtu, gid_table_length;
  uint32_t capabilities, max_message, bad_pkeys, qkey_violations;
  uint16_t pkey_table_length, lid, sm_lid;
  uint8_t lmc, max_vl, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed;
  uint8_t physical_state, link_layer, flags;
  uint16_t capabilities2;
};

struct Pd {
  Context* context;
  uint32_t handle;
};
struct Mr {
  Context* context;
  Pd* pd;
  void* address;
  size_t length;
  uint32_t handle, lkey, rkey;
};
struct CompletionChannel {
  Context* context;
  int fd, references;
};

/// struct ibv_async_event.
struct AsyncEvent {
  union {
    Cq* cq;
    Qp* qp;
    int port;
    void* any;
  } of;
  int type;
};
enum : int {
  kEventCqError = 0,
  kEventQpFatal,
  kEventQpRequestError,
  kEventQpAccessError,
  kEventDeviceFatal = 8,
};

enum : int { kForkDisabled, kForkEnabled, kForkUnneeded };

enum : int { kWcSuccess = 0, kWcFlushed = 5, kWcRetryExceeded = 12, kWcRnrExceeded = 13 };
enum : int {
  kWcSend = 0,
  kWcRdmaWrite = 1,
  kWcRdmaRead = 2,
  kWcRecv = 128,
  kWcRecvRdmaWithImm = 129
};
struct Wc {
  uint64_t id;
  int status, opcode;
  uint32_t vendor_error, bytes, immediate, qp, source_qp;
  unsigned flags;
  uint16_t pkey_index, source_lid;
  uint8_t service_level, path_bits;
};

enum : unsigned { kLocalWrite = 1, kRemoteWrite = 2, kRemoteRead = 4 };

struct GlobalRoute {
  Gid destination;
  uint32_t flow_label;
  uint8_t source_index, hop_limit, traffic_class;
};
struct AddressVector {
  GlobalRoute global;
  uint16_t lid;
  uint8_t service_level, path_bits, rate, is_global, port;
};

struct QpLimits {
  uint32_t sends, receives, send_parts, receive_parts, inline_bytes;
};
enum : int { kQpReliable = 2 };
struct QpInit {
  void* context;
  Cq* send_cq;
  Cq* receive_cq;
  void* shared_receives;
  QpLimits limits;
  int type, signal_all;
};
enum : int { kQpReset, kQpInit, kQpReadyToReceive, kQpReadyToSend, kQpDrained, kQpSendError };
enum : int { kQpError = 6 };
enum : int {
  kSetState = 1 << 0,
  kSetAccess = 1 << 3,
  kSetPkey = 1 << 4,
  kSetPort = 1 << 5,
  kSetAddress = 1 << 7,
  kSetMtu = 1 << 8,
  kSetTimeout = 1 << 9,
  kSetRetries = 1 << 10,
  kSetRnrRetries = 1 << 11,
  kSetReceivePsn = 1 << 12,
  kSetMaxReads = 1 << 13,
  kSetMinRnrTimer = 1 << 15,
  kSetSendPsn = 1 << 16,
  kSetMaxPeerReads = 1 << 17,
  kSetPeerQp = 1 << 20,
};
struct QpAttr {
  int state, current_state, mtu, migration;
  uint32_t qkey, receive_psn, send_psn, peer_qp;
  unsigned access;
  QpLimits limits;
  AddressVector address, alternative;
  uint16_t pkey_index, alternative_pkey_index;
  uint8_t notify_drained, draining, max_reads, max_peer_reads, min_rnr_timer, port, timeout;
  uint8_t retries, rnr_retries, alternative_port, alternative_timeout;
  uint32_t rate_limit;
};
/// struct ibv_qp up to its number. libibverbs allocates it.
struct Qp {
  Context* context;
  void* user;
  Pd* pd;
  Cq* send_cq;
  Cq* receive_cq;
  void* shared_receives;
  uint32_t handle, number;
};
/// struct ibv_cq up to its context. libibverbs allocates it.
struct Cq {
  Context* context;
  CompletionChannel* channel;
  void* user;
};

struct Sge {
  uint64_t address;
  uint32_t length, lkey;
};
enum : int { kRdmaWrite, kRdmaWriteWithImm, kSend, kSendWithImm, kRdmaRead };
enum : unsigned { kSignaled = 2, kInline = 8 };
struct SendWr {
  uint64_t id;
  SendWr* next;
  Sge* parts;
  int n_parts, opcode;
  unsigned flags;
  uint32_t immediate;
  struct {
    uint64_t address;
    uint32_t rkey;
    uint64_t unused[2];  // for atomics and datagrams
  } remote;
  uint64_t unused[7];  // for XRC, memory windows and segmentation
};
struct RecvWr {
  uint64_t id;
  RecvWr* next;
  Sge* parts;
  int n_parts;
};

/// struct ibv_context_ops. The header's inline functions ibv_post_send, ibv_post_recv, ibv_poll_cq
/// and ibv_req_notify_cq call these.
struct ContextOps {
  void* before_poll[11];
  int (*poll_cq)(Cq*, int n, Wc*);
  int (*req_notify_cq)(Cq*, int solicited_only);
  void* before_post[12];
  int (*post_send)(Qp*, SendWr*, SendWr** bad);
  int (*post_recv)(Qp*, RecvWr*, RecvWr** bad);
  void* after_post[5];
};
struct Context {
  Device* device;
  ContextOps ops;
  int command_fd, async_fd, n_vectors;
};

}  // namespace hetccl::transport::verbs::abi
