/* A transport by UCX, for hetccl: RDMA where the network cards have it, else TCP.
 *
 * Two ends meet by a socket (ucx_meeting.c), over which they exchange the addresses of UCX workers.
 * All else travels as active messages of UCX (ucx_messages.c). The socket stays open: it tells when
 * the peer's process ends, also if UCX does not. UCX itself trusts its network, see
 * docs/adaptors.md. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "ucx.h"

static char version[32];

static const char* error_text(int code) {
  switch (code) {
    case kGivenUp:
      return "the other end has not come";
    case kGone:
      return "the other end has closed it, or is gone";
    case kBroken:
      return "a message of another length than its receive came";
    case kAddress:
      return "this is not an address of the adaptor";
    case kLong:
      return "UCX's address is too long: name fewer devices in UCX_NET_DEVICES";
    case kNoListener:
      return "it can listen on no address of this host";
    case kNoMemory:
      return "no memory";
    case kSystem:
      return "the system has no more descriptors or random numbers";
    default:
      return ucs_status_string((ucs_status_t)code);
  }
}

static int score(int same_host) {
  (void)same_host;
  return 5 * HETCCL_TCP_SCORE;
}

uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void rest(Transport* transport, int* us) {
  const struct timespec time = {0, *us * 1000L};
  pthread_mutex_unlock(&transport->mutex);
  nanosleep(&time, NULL);
  pthread_mutex_lock(&transport->mutex);
  if (*us < 1000) *us *= 2;
}

/* --- channels */

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

static int make_channel(Transport* transport, Channel** made) {
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

/* What this end says of itself; false if UCX's address is too long. */
static int fill_hello(const Channel* channel, const uint8_t* id, Hello* hello) {
  ucp_address_t* address = NULL;
  size_t bytes = 0;
  memset(hello, 0, sizeof *hello);
  memcpy(hello->magic, kMagic, sizeof hello->magic);
  memcpy(hello->id, id, sizeof hello->id);
  hello->number = channel->number;
  if (ucp_worker_get_address(channel->worker, &address, &bytes) != UCS_OK) return 0;
  hello->bytes = bytes;
  if (bytes <= sizeof hello->worker) memcpy(hello->worker, address, bytes);
  ucp_worker_release_address(channel->worker, address);
  return bytes <= sizeof hello->worker;
}

static ucs_status_t join(Channel* channel, const Hello* theirs) {
  const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLER |
                                                UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                                  .address = (const ucp_address_t*)theirs->worker,
                                  .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                  .err_handler = {on_error, channel}};
  channel->their_number = theirs->number;
  return ucp_ep_create(channel->worker, &params, &channel->ep);
}

/* Until UCX has ended all that it does for the channel: it touches no buffer any more. */
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

/* One that is no longer, or not yet, among the transport's. */
static void free_channel(Channel* channel) {
  end_endpoint(channel);
  free_messages(channel);
  ucp_worker_destroy(channel->worker);
  if (channel->socket >= 0) close(channel->socket);
  free(channel);
}

static void unlink_channel(Channel* channel) {
  Channel** at = &channel->transport->channels;
  while (*at != channel) at = &(*at)->next;
  *at = channel->next;
}

static int connect_channel(void* arg, const hetcclTransportPeer* peer, void** made) {
  Transport* transport = arg;
  Channel* channel = NULL;
  Hello own, theirs;
  memset(&theirs, 0, sizeof theirs);
  if (peer->address_bytes == 0 || peer->address_bytes % sizeof(Where) != 0) return kAddress;
  int code = make_channel(transport, &channel);
  if (code != 0) return code;
  pthread_mutex_lock(&transport->mutex);
  code = fill_hello(channel, peer->id, &own) ? 0 : kLong;
  if (code == 0) code = meet(transport, peer, &own, &theirs, &channel->socket);
  if (code == 0) code = join(channel, &theirs);
  if (code == 0) {
    channel->next = transport->channels;
    transport->channels = channel;
    transport->armed = 0;
    *made = channel;
  } else {
    free_channel(channel);
  }
  pthread_mutex_unlock(&transport->mutex);
  return code;
}

/* What has been sent whole arrives: the channel lives until the peer says so. What has not must not
 * be read any more. */
static void close_channel(void* arg) {
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
    tell(channel, kBye, channel->next_send);
  }
  pthread_mutex_unlock(&transport->mutex);
}

/* --- work */

/* The peer says nothing more over the socket: it ends with its process, or its end. */
static void look_at_socket(Channel* channel) {
  char byte = 0;
  const ssize_t n = recv(channel->socket, &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  channel->gone = 1;
  close(channel->socket);
  channel->socket = -1;
}

/* A closed one, which lingers; whether it has ended now. */
static int end_closed(Channel* channel) {
  if (channel->bye_came) tell(channel, kByeHeard, 0);
  if (!channel->bye_came && !channel->bye_heard && !channel->gone &&
      now_ms() - channel->closed_ms <= kLingerMs)
    return 0;
  unlink_channel(channel);
  free_channel(channel);
  return 1;
}

/* Whether anything has moved. */
static int work_on(Channel* channel, int looks) {
  int n = 0;
  while (n < 64 && ucp_worker_progress(channel->worker) != 0) ++n;
  if (looks && channel->socket >= 0) look_at_socket(channel);
  if (n == 0 && !looks && channel->transport->armed) return 0;
  if (channel->closed) return end_closed(channel) || n > 0;
  if (channel->arrivals != NULL) match(channel);
  if (channel->taken - channel->told_taken >= kCreditBytes) {
    channel->told_taken = channel->taken;
    tell(channel, kCredit, channel->taken);
  }
  return n > 0;
}

int work(Transport* transport) {
  const uint64_t now = now_ms();
  const int looks = now - transport->looked_ms >= kLookMs;
  int moved = 0;
  if (looks) {
    transport->looked_ms = now;
    look_at_guests(transport);
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

/* An event after this makes the descriptor readable. False if there has been one. `again`: what
 * woke may have been of no interest, and is to be taken off the descriptor. */
static int arm(Transport* transport, int again) {
  if (transport->armed && !again) return 1;
  transport->armed = 1;
  for (Channel* channel = transport->channels; channel != NULL; channel = channel->next)
    if (ucp_worker_arm(channel->worker) == UCS_ERR_BUSY) transport->armed = 0;
  return transport->armed;
}

static int progress(void* arg, int* moved) {
  Transport* transport = arg;
  uint64_t rings = 0;
  pthread_mutex_lock(&transport->mutex);
  if (transport->rung) {
    transport->rung = 0;
    *moved = read(transport->bell, &rings, sizeof rings) > 0;
  }
  const uint64_t looked_ms = transport->looked_ms;
  if (work(transport) || !arm(transport, looked_ms != transport->looked_ms)) *moved = 1;
  pthread_mutex_unlock(&transport->mutex);
  return 0;
}

static int poll_fd(void* arg) {
  return ((Transport*)arg)->epoll;
}

/* --- the transport */

static ucs_status_t make_context(Transport* transport) {
  const ucp_params_t params = {
      .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
      .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
      .mt_workers_shared = 1};
  ucp_config_t* config = NULL;
  ucs_status_t status = ucp_config_read(NULL, NULL, &config);
  if (status != UCS_OK) return status;
  /* A peer that reads this process's memory by itself goes on after a close. */
  if (getenv("UCX_TLS") == NULL) {
    char without[32] = "^cma";
    if (access("/dev/xpmem", F_OK) == 0) strcat(without, ",xpmem");
    if (access("/dev/knem", F_OK) == 0) strcat(without, ",knem");
    ucp_config_modify(config, "TLS", without);
  }
  status = ucp_init(&params, config, &transport->context);
  ucp_config_release(config);
  return status;
}

static int make_descriptor(Transport* transport) {
  struct epoll_event event = {.events = EPOLLIN};
  transport->epoll = epoll_create1(EPOLL_CLOEXEC);
  transport->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return transport->epoll >= 0 && transport->bell >= 0 &&
         epoll_ctl(transport->epoll, EPOLL_CTL_ADD, transport->bell, &event) == 0;
}

static void destroy(void* arg) {
  Transport* transport = arg;
  const uint64_t end = now_ms() + kLastMs;
  pthread_mutex_lock(&transport->mutex);
  for (int us = 20; transport->channels != NULL && now_ms() < end; rest(transport, &us)) {
    transport->armed = 0;
    work(transport);
  }
  while (transport->channels != NULL) {
    Channel* first = transport->channels;
    transport->channels = first->next;
    free_channel(first);
  }
  drop_guests(transport);
  if (transport->context != NULL) ucp_cleanup(transport->context);
  if (transport->epoll >= 0) close(transport->epoll);
  if (transport->bell >= 0) close(transport->bell);
  pthread_mutex_unlock(&transport->mutex);
  free(transport);
}

static int open_transport(const hetcclTransportSettings* settings, void** made, void* address,
                          size_t* bytes) {
  Transport* transport = calloc(1, sizeof *transport);
  if (transport == NULL) return kNoMemory;
  pthread_mutex_init(&transport->mutex, NULL);
  transport->epoll = transport->bell = -1;
  Where* addresses = address;
  size_t n = 0;
  int code = make_context(transport);
  if (code == 0 && !make_descriptor(transport)) code = kSystem;
  for (size_t i = 0; code == 0 && i < settings->n_hosts && n < kMostHosts; ++i)
    n += listen_at(transport, settings->hosts[i], &addresses[n]) ? 1 : 0;
  if (code == 0 && n == 0) code = kNoListener;
  if (code == 0) { /* what UCX lacks shows only in a worker */
    Channel* trial = NULL;
    code = make_channel(transport, &trial);
    if (code == 0) free_channel(trial);
  }
  if (code != 0) {
    destroy(transport);
    return code;
  }
  *bytes = n * sizeof *addresses;
  *made = transport;
  return 0;
}

__attribute__((visibility("default"))) const hetcclAdaptorTable* hetcclAdaptor(uint32_t abi) {
  static const hetcclTransportAdaptor transport = {.size = sizeof transport,
                                                   .name = "ucx",
                                                   .version = version,
                                                   .capabilities = HETCCL_TRANSPORT_JOINS_HOSTS,
                                                   .error_text = error_text,
                                                   .score = score,
                                                   .open = open_transport,
                                                   .connect = connect_channel,
                                                   .send = post_send,
                                                   .receive = post_receive,
                                                   .completed = completed,
                                                   .progress = progress,
                                                   .poll_fd = poll_fd,
                                                   .close = close_channel,
                                                   .destroy = destroy};
  static const hetcclAdaptorTable table = {
      .size = sizeof table, .abi = HETCCL_ADAPTOR_ABI, .transport = &transport};
  unsigned major = 0, minor = 0, release = 0;
  if (abi != HETCCL_ADAPTOR_ABI) return NULL;
  ucp_get_version(&major, &minor, &release);
  snprintf(version, sizeof version, "%u.%u", major, minor);
  return &table;
}
