/* Channels of the UCX adaptor over a UCX that cancels nothing until its worker ends, and then calls
 * back, as UCX does for operations that hang in a driver. The fake's clock makes 1 s of each look.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "ucx.h"

static struct {
  ucp_send_nbx_callback_t sent;
  void* send;
  ucp_am_recv_data_nbx_callback_t received;
  void* receive;
  char* target;
  int ended;
} fake;

int fake_clock(clockid_t clock, struct timespec* now) {
  static time_t seconds = 0;
  (void)clock;
  *now = (struct timespec){++seconds, 0};
  return 0;
}

void serve_guests(Transport* transport) {
  (void)transport;
}

ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params,
                               ucp_worker_h* worker) {
  (void)context, (void)params;
  *worker = (ucp_worker_h)&fake;
  return UCS_OK;
}
ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
                                            const ucp_am_handler_param_t* param) {
  (void)worker, (void)param;
  return UCS_OK;
}
ucs_status_t ucp_worker_get_efd(ucp_worker_h worker, int* fd) {
  (void)worker;
  *fd = eventfd(0, 0);
  return UCS_OK;
}
void ucp_worker_destroy(ucp_worker_h worker) {
  (void)worker;
  memset(fake.target, 1, 64);
  fake.sent(&fake, UCS_ERR_CANCELED, fake.send);
  fake.received(&fake, UCS_ERR_CANCELED, 0, fake.receive);
  fake.ended = 1;
}
ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t** address, size_t* bytes) {
  (void)worker, (void)address, (void)bytes;
  return UCS_ERR_UNSUPPORTED;
}
void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t* address) {
  (void)worker, (void)address;
}
ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t* params, ucp_ep_h* ep) {
  (void)worker, (void)params;
  *ep = (ucp_ep_h)&fake;
  return UCS_OK;
}
ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
  (void)ep, (void)param;
  return &fake;
}
ucs_status_t ucp_request_check_status(void* request) {
  (void)request;
  return UCS_INPROGRESS;
}
void ucp_request_free(void* request) {
  (void)request;
}
unsigned ucp_worker_progress(ucp_worker_h worker) {
  (void)worker;
  return 0;
}
ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_bytes,
                                 const void* data, size_t bytes, const ucp_request_param_t* param) {
  (void)ep, (void)id, (void)header, (void)header_bytes, (void)data, (void)bytes;
  fake.sent = param->cb.send;
  fake.send = param->user_data;
  return &fake;
}
ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void* descriptor, void* data,
                                      size_t bytes, const ucp_request_param_t* param) {
  (void)worker, (void)descriptor, (void)bytes;
  fake.received = param->cb.recv_am;
  fake.receive = param->user_data;
  fake.target = data;
  return &fake;
}
void ucp_am_data_release(ucp_worker_h worker, void* data) {
  (void)worker, (void)data;
}

int main(void) {
  static Transport transport = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  char* const memory = calloc(1, 64);
  Channel* channel = NULL;
  Hello theirs = {.number = 7};
  transport.epoll = epoll_create1(0);
  if (memory == NULL || make_channel(&transport, &channel) != 0) return 2;
  if (join(channel, &theirs) != UCS_OK) return 2;
  transport.channels = channel;
  const Head head = {.to = channel->number, .kind = kData};
  const ucp_am_recv_param_t waits = {.recv_attr = UCP_AM_RECV_ATTR_FLAG_RNDV};
  if (post_send(channel, memory, 64) != 0 || post_receive(channel, memory, 64) != 0) return 2;
  on_message(channel, &head, sizeof head, &fake, 64, &waits);
  match(channel);
  if (channel->under_way != 2) return 3;
  close_channel(channel);
  free(memory);
  if (!fake.ended) return 4;
  puts("the worker ends before the posts");
  return 0;
}
