/* A UCX transport for hetccl: RDMA if the network cards have it, else TCP.
 *
 * Two ends meet over a socket (ucx_meeting.c) and exchange the addresses of UCX workers. All else
 * travels as active messages of UCX (ucx_messages.c). The socket stays open, because it shows the
 * end of the peer's process even if UCX does not. UCX itself trusts its network, see
 * docs/adaptors.md. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
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
      return "a message of another length than its receive came, or more than may come ahead";
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

/* Arms the descriptor, so that later events make it readable. Returns false if there has been an
 * event already. `again`: arms anew, because the last wake-up may have been irrelevant and must be
 * cleared. */
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
  /* Excludes transports with which a peer reads this process's memory: it would go on after a
   * close. */
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
  if (code == 0) { /* only a worker shows features that UCX lacks */
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
