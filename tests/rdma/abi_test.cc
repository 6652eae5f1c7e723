// Compares hetccl's declarations of libibverbs with rdma-core's header, if that is installed.
#include "transport/verbs/abi.h"

#include <doctest/doctest.h>

#if __has_include(<infiniband/verbs.h>)
#include <infiniband/verbs.h>

#include <cstddef>

namespace abi = hetccl::transport::verbs::abi;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(abi::ours) == sizeof(theirs))
#define SAME_PLACE(ours, field, theirs, their_field)                           \
  static_assert(offsetof(abi::ours, field) == offsetof(theirs, their_field) && \
                sizeof(abi::ours::field) == sizeof(theirs::their_field))
#define SAME_NUMBER(ours, theirs) static_assert(static_cast<int>(abi::ours) == (theirs))

SAME_SIZE(Device, ibv_device);
SAME_PLACE(Device, name, ibv_device, name);
SAME_SIZE(GidEntry, ibv_gid_entry);
SAME_PLACE(GidEntry, type, ibv_gid_entry, gid_type);
SAME_PLACE(GidEntry, index, ibv_gid_entry, gid_index);
SAME_SIZE(PortAttr, ibv_port_attr);
SAME_PLACE(PortAttr, state, ibv_port_attr, state);
SAME_PLACE(PortAttr, active_mtu, ibv_port_attr, active_mtu);
SAME_PLACE(PortAttr, gid_table_length, ibv_port_attr, gid_tbl_len);
SAME_PLACE(PortAttr, pkey_table_length, ibv_port_attr, pkey_tbl_len);
SAME_PLACE(PortAttr, lid, ibv_port_attr, lid);
SAME_PLACE(PortAttr, active_width, ibv_port_attr, active_width);
SAME_PLACE(PortAttr, active_speed, ibv_port_attr, active_speed);
SAME_PLACE(PortAttr, link_layer, ibv_port_attr, link_layer);
SAME_SIZE(Pd, ibv_pd);
SAME_SIZE(Mr, ibv_mr);
SAME_PLACE(Mr, lkey, ibv_mr, lkey);
SAME_PLACE(Mr, rkey, ibv_mr, rkey);
SAME_SIZE(CompletionChannel, ibv_comp_channel);
SAME_PLACE(CompletionChannel, fd, ibv_comp_channel, fd);
SAME_SIZE(AsyncEvent, ibv_async_event);
SAME_PLACE(AsyncEvent, of, ibv_async_event, element);
SAME_PLACE(AsyncEvent, type, ibv_async_event, event_type);
SAME_SIZE(Wc, ibv_wc);
SAME_PLACE(Wc, status, ibv_wc, status);
SAME_PLACE(Wc, opcode, ibv_wc, opcode);
SAME_PLACE(Wc, vendor_error, ibv_wc, vendor_err);
SAME_PLACE(Wc, bytes, ibv_wc, byte_len);
SAME_PLACE(Wc, immediate, ibv_wc, imm_data);
SAME_SIZE(AddressVector, ibv_ah_attr);
SAME_PLACE(AddressVector, lid, ibv_ah_attr, dlid);
SAME_PLACE(AddressVector, service_level, ibv_ah_attr, sl);
SAME_PLACE(AddressVector, is_global, ibv_ah_attr, is_global);
SAME_PLACE(AddressVector, port, ibv_ah_attr, port_num);
SAME_PLACE(GlobalRoute, source_index, ibv_global_route, sgid_index);
SAME_PLACE(GlobalRoute, hop_limit, ibv_global_route, hop_limit);
SAME_PLACE(GlobalRoute, traffic_class, ibv_global_route, traffic_class);
SAME_SIZE(QpInit, ibv_qp_init_attr);
SAME_PLACE(QpInit, limits, ibv_qp_init_attr, cap);
SAME_PLACE(QpInit, type, ibv_qp_init_attr, qp_type);
SAME_PLACE(QpInit, signal_all, ibv_qp_init_attr, sq_sig_all);
SAME_PLACE(QpLimits, inline_bytes, ibv_qp_cap, max_inline_data);
SAME_SIZE(QpAttr, ibv_qp_attr);
SAME_PLACE(QpAttr, mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(QpAttr, receive_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(QpAttr, send_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(QpAttr, peer_qp, ibv_qp_attr, dest_qp_num);
SAME_PLACE(QpAttr, access, ibv_qp_attr, qp_access_flags);
SAME_PLACE(QpAttr, address, ibv_qp_attr, ah_attr);
SAME_PLACE(QpAttr, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(QpAttr, max_reads, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(QpAttr, max_peer_reads, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(QpAttr, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(QpAttr, port, ibv_qp_attr, port_num);
SAME_PLACE(QpAttr, timeout, ibv_qp_attr, timeout);
SAME_PLACE(QpAttr, retries, ibv_qp_attr, retry_cnt);
SAME_PLACE(QpAttr, rnr_retries, ibv_qp_attr, rnr_retry);
SAME_PLACE(Qp, context, ibv_qp, context);
SAME_PLACE(Qp, number, ibv_qp, qp_num);
SAME_PLACE(Cq, context, ibv_cq, context);
SAME_PLACE(Cq, channel, ibv_cq, channel);
SAME_SIZE(Sge, ibv_sge);
SAME_PLACE(Sge, lkey, ibv_sge, lkey);
SAME_SIZE(SendWr, ibv_send_wr);
SAME_PLACE(SendWr, opcode, ibv_send_wr, opcode);
SAME_PLACE(SendWr, flags, ibv_send_wr, send_flags);
SAME_PLACE(SendWr, immediate, ibv_send_wr, imm_data);
SAME_PLACE(SendWr, remote.address, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(SendWr, remote.rkey, ibv_send_wr, wr.rdma.rkey);
SAME_SIZE(RecvWr, ibv_recv_wr);
SAME_PLACE(RecvWr, parts, ibv_recv_wr, sg_list);
SAME_SIZE(ContextOps, ibv_context_ops);
SAME_PLACE(ContextOps, poll_cq, ibv_context_ops, poll_cq);
SAME_PLACE(ContextOps, req_notify_cq, ibv_context_ops, req_notify_cq);
SAME_PLACE(ContextOps, post_send, ibv_context_ops, post_send);
SAME_PLACE(ContextOps, post_recv, ibv_context_ops, post_recv);
SAME_PLACE(Context, ops, ibv_context, ops);
SAME_PLACE(Context, async_fd, ibv_context, async_fd);

SAME_NUMBER(kGidIb, IBV_GID_TYPE_IB);
SAME_NUMBER(kGidRoceV1, IBV_GID_TYPE_ROCE_V1);
SAME_NUMBER(kGidRoceV2, IBV_GID_TYPE_ROCE_V2);
SAME_NUMBER(kPortDown, IBV_PORT_DOWN);
SAME_NUMBER(kPortActive, IBV_PORT_ACTIVE);
SAME_NUMBER(kLinkInfiniBand, IBV_LINK_LAYER_INFINIBAND);
SAME_NUMBER(kLinkEthernet, IBV_LINK_LAYER_ETHERNET);
SAME_NUMBER(kEventCqError, IBV_EVENT_CQ_ERR);
SAME_NUMBER(kEventQpFatal, IBV_EVENT_QP_FATAL);
SAME_NUMBER(kEventQpRequestError, IBV_EVENT_QP_REQ_ERR);
SAME_NUMBER(kEventQpAccessError, IBV_EVENT_QP_ACCESS_ERR);
SAME_NUMBER(kEventDeviceFatal, IBV_EVENT_DEVICE_FATAL);
SAME_NUMBER(kForkDisabled, IBV_FORK_DISABLED);
SAME_NUMBER(kForkEnabled, IBV_FORK_ENABLED);
SAME_NUMBER(kForkUnneeded, IBV_FORK_UNNEEDED);
SAME_NUMBER(kWcSuccess, IBV_WC_SUCCESS);
SAME_NUMBER(kWcFlushed, IBV_WC_WR_FLUSH_ERR);
SAME_NUMBER(kWcRetryExceeded, IBV_WC_RETRY_EXC_ERR);
SAME_NUMBER(kWcRnrExceeded, IBV_WC_RNR_RETRY_EXC_ERR);
SAME_NUMBER(kWcSend, IBV_WC_SEND);
SAME_NUMBER(kWcRdmaWrite, IBV_WC_RDMA_WRITE);
SAME_NUMBER(kWcRecv, IBV_WC_RECV);
SAME_NUMBER(kWcRecvRdmaWithImm, IBV_WC_RECV_RDMA_WITH_IMM);
SAME_NUMBER(kLocalWrite, IBV_ACCESS_LOCAL_WRITE);
SAME_NUMBER(kRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
SAME_NUMBER(kQpReliable, IBV_QPT_RC);
SAME_NUMBER(kQpInit, IBV_QPS_INIT);
SAME_NUMBER(kQpReadyToReceive, IBV_QPS_RTR);
SAME_NUMBER(kQpReadyToSend, IBV_QPS_RTS);
SAME_NUMBER(kSetState, IBV_QP_STATE);
SAME_NUMBER(kSetAccess, IBV_QP_ACCESS_FLAGS);
SAME_NUMBER(kSetPkey, IBV_QP_PKEY_INDEX);
SAME_NUMBER(kSetPort, IBV_QP_PORT);
SAME_NUMBER(kSetAddress, IBV_QP_AV);
SAME_NUMBER(kSetMtu, IBV_QP_PATH_MTU);
SAME_NUMBER(kSetTimeout, IBV_QP_TIMEOUT);
SAME_NUMBER(kSetRetries, IBV_QP_RETRY_CNT);
SAME_NUMBER(kSetRnrRetries, IBV_QP_RNR_RETRY);
SAME_NUMBER(kSetReceivePsn, IBV_QP_RQ_PSN);
SAME_NUMBER(kSetMaxReads, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_NUMBER(kSetMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
SAME_NUMBER(kSetSendPsn, IBV_QP_SQ_PSN);
SAME_NUMBER(kSetMaxPeerReads, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_NUMBER(kSetPeerQp, IBV_QP_DEST_QPN);
SAME_NUMBER(kRdmaWriteWithImm, IBV_WR_RDMA_WRITE_WITH_IMM);
SAME_NUMBER(kSend, IBV_WR_SEND);
SAME_NUMBER(kSignaled, IBV_SEND_SIGNALED);
SAME_NUMBER(kInline, IBV_SEND_INLINE);

TEST_CASE("declarations agree with rdma-core's header") {
  CHECK(true);  // the compiler has compared them
}
#else
TEST_CASE("declarations agree with rdma-core's header") {
  MESSAGE("SKIPPED: no <infiniband/verbs.h> (apt-get install libibverbs-dev)");
}
#endif
