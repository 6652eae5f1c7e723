/* Makes, drives, lingers and ends channels. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ucx.h"

static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status) {
  (void)ep;
  (void)status;
  ((Channel*)arg)->gone = 1;
}

static ucs_status_t make_worker(Transport* transport, Channel* channel) {
  const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  const ucp_am_handler_param_t handler = {
      .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                    UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
      .id = 0,
      .flags = UCP_AM_FLAG_WHOLE_MSG,
      .cb = on_message,
      .arg = channel};
  struct epoll_event event = {.events = EPOLLIN};
  int fd = -1;
  ucs_status_t status = ucp_worker_create(transport->context, &params, &channel->worker);
  if (status == UCS_OK) status = ucp_worker_set_am_recv_handler(channel->worker, &handler);
  if (status == UCS_OK) status = ucp_worker_get_efd(channel->worker, &fd);
  if (status == UCS_OK && epoll_ctl(transport->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    status = UCS_ERR_IO_ERROR;
  return status;
}

int make_channel(Transport* transport, Channel** made) {
  Channel* channel = calloc(1, sizeof *channel);
  if (channel == NULL) return kNoMemory;
  channel->transport = transport;
  channel->socket = -1;
  if (getrandom(&channel->number, sizeof channel->number, 0) != sizeof channel->number) {
    free(channel);
    return kSystem;
  }
  const ucs_status_t status = make_worker(transport, channel);
  if (status != UCS_OK) {
    if (channel->worker != NULL) ucp_worker_destroy(channel->worker);
    free(channel);
    return status;
  }
  *made = channel;
  return 0;
}

int fill_hello(const Channel* channel, const uint8_t* id, Hello* hello) {
  ucp_address_t* address = NULL;
  size_t bytes = 0;
  memset(hello, 0, sizeof *hello);
  memcpy(hello->magic, kMagic, sizeof hello->magic);
  memcpy(hello->id, id, sizeof hello->id);
  hello->number = channel->number;
  if (getrandom(hello->nonce, sizeof hello->nonce, 0) != sizeof hello->nonce) return 0;
  if (ucp_worker_get_address(channel->worker, &address, &bytes) != UCS_OK) return 0;
  hello->bytes = bytes;
  if (bytes <= sizeof hello->worker) memcpy(hello->worker, address, bytes);
  ucp_worker_release_address(channel->worker, address);
  return bytes <= sizeof hello->worker;
}

ucs_status_t join(Channel* channel, const Hello* theirs) {
  const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                  .address = (const ucp_address_t*)theirs->worker,
                                  .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                  .err_handler = {on_error, channel}};
  channel->their_number = theirs->number;
  return ucp_ep_create(channel->worker, &params, &channel->ep);
}

/* Cancels what UCX still does with buffers of the channel, and waits for that, kCancelMs at most. */
static void end_endpoint(Channel* channel) {
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
  const uint64_t end = now_ms() + kCancelMs;
  void* closing = channel->ep != NULL ? ucp_ep_close_nbx(channel->ep, &param) : NULL;
  const int waits = UCS_PTR_IS_PTR(closing);
  while (
      (channel->under_way > 0 || (waits && ucp_request_check_status(closing) == UCS_INPROGRESS)) &&
      now_ms() < end)
    ucp_worker_progress(channel->worker);
  if (waits) ucp_request_free(closing);
}

/* Ends the worker before posts are freed. Operations that UCX has not cancelled in time end with the
 * worker: until then UCX may call back for them and write to their buffers. */
void free_channel(Channel* channel) {
  channel->closed = 1; /* drops what still arrives */
  end_endpoint(channel);
  free_arrivals(channel);
  ucp_worker_destroy(channel->worker);
  free_posts(channel);
  if (channel->socket >= 0) close(channel->socket);
  free(channel);
}

static void unlink_channel(Channel* channel) {
  Channel** at = &channel->transport->channels;
  while (*at != channel) at = &(*at)->next;
  *at = channel->next;
}

/* Data that has been sent completely must arrive, so the channel lives until the peer confirms it.
 * Buffers of other data must not be read any more, so the channel ends at once. */
void close_channel(void* arg) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  pthread_mutex_lock(&transport->mutex);
  transport->armed = 0;
  if (channel->under_way > 0 || channel->gone || channel->broken) {
    unlink_channel(channel);
    free_channel(channel);
  } else {
    channel->closed = 1;
    channel->closed_ms = now_ms();
    send_control(channel, kBye, channel->next_send);
  }
  pthread_mutex_unlock(&transport->mutex);
}

/* The peer sends nothing more over the socket, so it becomes readable when the peer's process or
 * channel ends. */
static void check_socket(Channel* channel) {
  char byte = 0;
  const ssize_t n = recv(channel->socket, &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  channel->gone = 1;
  close(channel->socket);
  channel->socket = -1;
}

/* Ends a closed, lingering channel if it can; returns whether it has. */
static int end_closed(Channel* channel) {
  if (channel->bye_came) send_control(channel, kByeHeard, 0);
  if (!channel->bye_came && !channel->bye_heard && !channel->gone &&
      now_ms() - channel->closed_ms <= kLingerMs)
    return 0;
  unlink_channel(channel);
  free_channel(channel);
  return 1;
}

/* Returns whether anything has moved. */
static int work_on(Channel* channel, int looks) {
  int n = 0;
  while (n < 64 && ucp_worker_progress(channel->worker) != 0) ++n;
  if (looks && channel->socket >= 0) check_socket(channel);
  if (n == 0 && !looks && channel->transport->armed) return 0;
  if (channel->closed) return end_closed(channel) || n > 0;
  if (channel->arrivals != NULL) match(channel);
  if (channel->taken - channel->told_taken >= kCreditBytes) {
    channel->told_taken = channel->taken;
    send_control(channel, kCredit, channel->taken);
  }
  return n > 0;
}

int work(Transport* transport) {
  const uint64_t now = now_ms();
  const int looks = now - transport->looked_ms >= kLookMs;
  int moved = 0;
  if (looks) {
    transport->looked_ms = now;
    serve_guests(transport);
  }
  for (Channel *channel = transport->channels, *next = NULL; channel != NULL; channel = next) {
    next = channel->next;
    moved |= work_on(channel, looks);
  }
  if (moved) transport->armed = 0;
  return moved;
}

void ring(Transport* transport) {
  const uint64_t once = 1;
  if (transport->rung) return;
  transport->rung = 1;
  if (write(transport->bell, &once, sizeof once) < 0) transport->rung = 0;
}
