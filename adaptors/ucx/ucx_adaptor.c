/* A transport by UCX, for hetccl: RDMA where the network cards have it, else TCP.
 *
 * Of two ends, side 0 dials: each channel is a UCX endpoint of its own, made through a listener.
 * Everything travels as active messages of one kind, with a Head in front. What says who is who:
 *
 *   side 0 -> 1   Hello    the channel's id, side 0's number for it
 *   side 1 -> 0   Heard    at once: the dialer need not try another address
 *   side 1 -> 0   Welcome  once side 1 connects, too: its number for the channel
 *
 * Numbers are random: a stranger does not guess one. UCX itself trusts its network, see
 * docs/adaptors.md. UCX keeps active messages in no order, so data carry a number. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
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
    case kNoListener:
      return "UCX can listen on no address of this host";
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

/* --- channels */

static void unlink_channel(Channel* channel) {
  Channel** at = &channel->transport->channels;
  while (*at != channel) at = &(*at)->next;
  *at = channel->next;
}

static void free_channel(Channel* channel) {
  unlink_channel(channel);
  free_messages(channel);
  if (channel->end != NULL) close_end(channel->end);
  free(channel);
}

static void look_at_channels(Transport* transport) {
  for (Channel *channel = transport->channels, *next = NULL; channel != NULL; channel = next) {
    next = channel->next;
    if (channel->closed) {
      const int is_late = now_ms() - channel->closed_ms > kLingerMs;
      if (channel->bye_came) tell(channel->end, kByeHeard, channel->their_number, 0, NULL);
      if (channel->bye_came || channel->bye_heard || channel->end->failed || is_late)
        free_channel(channel);
      continue;
    }
    if (channel->their_number == 0) continue;
    if (channel->arrivals != NULL) match(channel);
    if (channel->taken - channel->told_taken >= kCreditBytes) {
      channel->told_taken = channel->taken;
      tell(channel->end, kCredit, channel->their_number, channel->taken, NULL);
    }
  }
}

/* Whether anything has moved. With the mutex held, as all that is called so far. */
static int work(Transport* transport) {
  int moved = 0;
  while (moved < 64 && ucp_worker_progress(transport->worker) != 0) ++moved;
  if (moved == 0 && transport->armed) return 0; /* nor has anything been posted */
  if (transport->strangers != NULL || transport->n_requests > 0) look_at_strangers(transport);
  look_at_channels(transport);
  if (transport->closing != NULL) free_ends(transport);
  return moved > 0;
}

static void ring(Transport* transport) {
  const uint64_t once = 1;
  if (transport->rung) return;
  transport->rung = 1;
  if (write(transport->bell, &once, sizeof once) < 0) transport->rung = 0;
}

/* An event after this makes the descriptor readable. False where there has been one. */
static int arm(Transport* transport) {
  if (!transport->armed) {
    transport->armed = ucp_worker_arm(transport->worker) == UCS_OK;
    transport->armed_ms = now_ms();
  }
  return transport->armed;
}

static int progress(void* arg, int* moved) {
  Transport* transport = arg;
  uint64_t rings = 0;
  pthread_mutex_lock(&transport->mutex);
  /* From time to time: what is late goes, and what woke for nothing is taken off the descriptor. */
  if (transport->armed && now_ms() - transport->armed_ms > kArmedMs) transport->armed = 0;
  if (transport->rung) {
    transport->rung = 0;
    *moved = read(transport->bell, &rings, sizeof rings) > 0;
  }
  if (work(transport)) {
    transport->armed = 0;
    *moved = 1;
  } else if (!arm(transport)) {
    *moved = 1;
  }
  pthread_mutex_unlock(&transport->mutex);
  return 0;
}

static int poll_fd(void* arg) {
  return ((Transport*)arg)->epoll;
}

static Channel* make_channel(Transport* transport) {
  Channel* channel = calloc(1, sizeof *channel);
  if (channel == NULL) return NULL;
  if (getrandom(&channel->number, sizeof channel->number, 0) != sizeof channel->number) {
    free(channel);
    return NULL;
  }
  channel->number |= 1;
  channel->transport = transport;
  channel->next = transport->channels;
  transport->channels = channel;
  return channel;
}

/* Longer each time, up to 1 ms. */
static void rest(Transport* transport, int* us) {
  const struct timespec time = {0, *us * 1000L};
  pthread_mutex_unlock(&transport->mutex);
  nanosleep(&time, NULL);
  pthread_mutex_lock(&transport->mutex);
  if (*us < 1000) *us *= 2;
}

/* What it moves may be another's: the thread that sleeps on the descriptor looks. */
static void work_in_connect(Transport* transport) {
  if (!work(transport)) return;
  transport->armed = 0;
  ring(transport);
}

/* Takes the peer's hello. */
static int await_hello(Transport* transport, const hetcclTransportPeer* peer, Channel* channel) {
  for (int rest_us = 20;; rest(transport, &rest_us)) {
    work_in_connect(transport);
    for (End** at = &transport->strangers; *at != NULL; at = &(*at)->next) {
      End* end = *at;
      if (!end->has_hello || end->failed || memcmp(end->id, peer->id, sizeof end->id) != 0)
        continue;
      *at = end->next;
      channel->end = end;
      channel->their_number = end->their_number;
      tell(end, kWelcome, channel->their_number, channel->number, NULL);
      return 0;
    }
    if (peer->given_up(peer->context)) return kGivenUp;
  }
}

static End* dial(Transport* transport, const Where* where) {
  struct sockaddr_storage storage;
  ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
                            .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER};
  memset(&storage, 0, sizeof storage);
  if (where->family == 4) {
    struct sockaddr_in* v4 = (struct sockaddr_in*)&storage;
    v4->sin_family = AF_INET;
    v4->sin_port = where->port;
    memcpy(&v4->sin_addr, where->ip, 4);
    params.sockaddr.addrlen = sizeof *v4;
  } else {
    struct sockaddr_in6* v6 = (struct sockaddr_in6*)&storage;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = where->port;
    memcpy(&v6->sin6_addr, where->ip, 16);
    params.sockaddr.addrlen = sizeof *v6;
  }
  params.sockaddr.addr = (struct sockaddr*)&storage;
  return make_end(transport, &params);
}

/* Says hello, at each of the peer's addresses in turn, until one answers. */
static int say_hello(Transport* transport, const hetcclTransportPeer* peer, Channel* channel) {
  const Where* addresses = peer->address;
  const size_t n = peer->address_bytes / sizeof *addresses;
  uint64_t dialled_ms = 0;
  size_t next = 0;
  for (int rest_us = 20; channel->their_number == 0; rest(transport, &rest_us)) {
    const uint64_t now = now_ms();
    if (channel->end != NULL &&
        (channel->end->failed || (!channel->heard && now - dialled_ms > kHeardMs))) {
      close_end(channel->end);
      channel->end = NULL;
      channel->heard = 0;
    }
    if (channel->end == NULL && now - dialled_ms > kRedialMs) {
      channel->end = dial(transport, &addresses[next++ % n]);
      dialled_ms = now;
      rest_us = 20;
      if (channel->end != NULL) tell(channel->end, kHello, 0, channel->number, peer->id);
    }
    work_in_connect(transport);
    if (peer->given_up(peer->context)) return kGivenUp;
  }
  return 0;
}

static int connect_channel(void* arg, const hetcclTransportPeer* peer, void** made) {
  Transport* transport = arg;
  if (peer->address_bytes == 0 || peer->address_bytes % sizeof(Where) != 0) return kAddress;
  pthread_mutex_lock(&transport->mutex);
  Channel* channel = make_channel(transport);
  int code = kNoMemory;
  if (channel != NULL) {
    code = peer->side == 0 ? say_hello(transport, peer, channel)
                           : await_hello(transport, peer, channel);
    if (code != 0)
      free_channel(channel);
    else
      *made = channel;
  }
  pthread_mutex_unlock(&transport->mutex);
  return code;
}

/* Until UCX has ended all that it does for the channel, whose endpoint is being closed. */
static void cancel(Channel* channel) {
  Transport* transport = channel->transport;
  const uint64_t end = now_ms() + kCancelMs;
  close_end(channel->end);
  channel->end = NULL;
  while (channel->under_way > 0 && now_ms() < end) {
    ucp_worker_progress(transport->worker);
    free_ends(transport);
  }
}

/* What has been sent whole arrives: the connection lives until the peer says so. What has not must
 * not be read any more. */
static void close_channel(void* arg) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  pthread_mutex_lock(&transport->mutex);
  transport->armed = 0;
  if (channel->under_way > 0 || channel->gone || channel->broken || channel->end->failed) {
    if (channel->under_way > 0) cancel(channel);
    if (channel->under_way == 0)
      free_channel(channel);
    else
      unlink_channel(channel); /* leaked: UCX may still write to it */
  } else {
    channel->closed = 1;
    channel->closed_ms = now_ms();
    tell(channel->end, kBye, channel->their_number, channel->next_send, NULL);
  }
  pthread_mutex_unlock(&transport->mutex);
}

/* --- the transport */

static int listen_at(Transport* transport, const char* host, Where* where) {
  struct sockaddr_storage storage;
  struct sockaddr_in* v4 = (struct sockaddr_in*)&storage;
  struct sockaddr_in6* v6 = (struct sockaddr_in6*)&storage;
  ucp_listener_params_t params = {
      .field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
      .conn_handler = {on_request, transport}};
  ucp_listener_attr_t made = {.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR};
  ucp_listener_h* listener = &transport->listeners[transport->n_listeners];
  memset(&storage, 0, sizeof storage);
  memset(where, 0, sizeof *where);
  if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    where->family = 4;
    params.sockaddr.addrlen = sizeof *v4;
    memcpy(where->ip, &v4->sin_addr, 4);
  } else if (inet_pton(AF_INET6, host, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    where->family = 6;
    params.sockaddr.addrlen = sizeof *v6;
    memcpy(where->ip, &v6->sin6_addr, 16);
  } else {
    return 0;
  }
  params.sockaddr.addr = (struct sockaddr*)&storage;
  if (ucp_listener_create(transport->worker, &params, listener) != UCS_OK) return 0;
  ++transport->n_listeners;
  if (ucp_listener_query(*listener, &made) != UCS_OK) return 0;
  where->port = where->family == 4 ? ((struct sockaddr_in*)&made.sockaddr)->sin_port
                                   : ((struct sockaddr_in6*)&made.sockaddr)->sin6_port;
  return 1;
}

static ucs_status_t make_worker(Transport* transport) {
  const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                               .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP};
  const ucp_worker_params_t worker = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                      .thread_mode = UCS_THREAD_MODE_SERIALIZED};
  const ucp_am_handler_param_t handler = {
      .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                    UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG,
      .id = 0,
      .flags = UCP_AM_FLAG_WHOLE_MSG,
      .cb = on_message,
      .arg = transport};
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
  if (status != UCS_OK) return status;
  status = ucp_worker_create(transport->context, &worker, &transport->worker);
  if (status != UCS_OK) return status;
  return ucp_worker_set_am_recv_handler(transport->worker, &handler);
}

static int make_descriptor(Transport* transport) {
  struct epoll_event event = {.events = EPOLLIN};
  int fd = -1;
  if (ucp_worker_get_efd(transport->worker, &fd) != UCS_OK) return 0;
  transport->epoll = epoll_create1(EPOLL_CLOEXEC);
  transport->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  return transport->epoll >= 0 && transport->bell >= 0 &&
         epoll_ctl(transport->epoll, EPOLL_CTL_ADD, fd, &event) == 0 &&
         epoll_ctl(transport->epoll, EPOLL_CTL_ADD, transport->bell, &event) == 0;
}

static void destroy(void* arg) {
  Transport* transport = arg;
  const uint64_t end = now_ms() + kLastMs;
  pthread_mutex_lock(&transport->mutex);
  transport->armed = 0;
  for (int rest_us = 20; transport->channels != NULL && now_ms() < end; rest(transport, &rest_us)) {
    transport->armed = 0;
    work(transport);
  }
  while (transport->channels != NULL) free_channel(transport->channels);
  while (transport->strangers != NULL) {
    End* stranger = transport->strangers;
    transport->strangers = stranger->next;
    close_end(stranger);
  }
  for (int i = 0; i < transport->n_requests; ++i)
    ucp_listener_reject(transport->listeners[0], transport->requests[i]);
  transport->n_requests = 0;
  while (transport->closing != NULL && now_ms() < end + kLastMs) {
    ucp_worker_progress(transport->worker);
    free_ends(transport);
  }
  for (int i = 0; i < transport->n_listeners; ++i) ucp_listener_destroy(transport->listeners[i]);
  if (transport->worker != NULL) ucp_worker_destroy(transport->worker);
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
  int code = make_worker(transport);
  if (code == 0 && !make_descriptor(transport)) code = kSystem;
  Where* addresses = address;
  size_t n = 0;
  for (size_t i = 0; code == 0 && i < settings->n_hosts && n < kMostHosts; ++i) {
    if (transport->n_listeners < kMostHosts &&
        listen_at(transport, settings->hosts[i], &addresses[n]))
      ++n;
  }
  if (code == 0 && n == 0) code = kNoListener;
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
