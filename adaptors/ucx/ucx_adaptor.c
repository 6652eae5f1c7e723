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
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include "hetccl/adaptor.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "heads and addresses travel in little endian"
#endif

enum { kGivenUp = 1, kGone, kBroken, kAddress, kNoListener, kNoMemory, kSystem };
enum {
  kMostHosts = 8,
  kMostStrangers = 256,
  kStrangerMs = 10000, /* time for a hello */
  kHeardMs = 3000,     /* time for an answer to it */
  kRedialMs = 50,
  kLingerMs = 5000, /* time for a peer to say that it has all */
  kLastMs = 1000,   /* the same when the process ends */
  kCancelMs = 5000, /* time for UCX to let go of buffers */
  kArmedMs = 1,
  kAheadBytes = 1 << 20, /* sent ahead of receives, at most */
  kCreditBytes = kAheadBytes / 4
};

typedef enum { kHello = 1, kHeard, kWelcome, kData, kCredit, kBye, kByeHeard } Kind;

typedef struct {
  uint64_t to;    /* the receiver's number of the channel; 0: hello */
  uint64_t value; /* the sender's number of the channel; of data and byes: their number; bytes */
  uint32_t kind;
  uint32_t ahead; /* data that count as sent ahead of their receive */
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
} Head;

typedef struct {
  uint8_t family, unused; /* 4 or 6 */
  uint16_t port;          /* big endian */
  uint8_t ip[16];
} Where;

typedef struct Transport Transport;
typedef struct Channel Channel;

/* A post, or a message of the adaptor's own. */
typedef struct Post {
  struct Post* next;
  Channel* channel; /* NULL: its own */
  void* data;
  size_t bytes;
  int started, done;
  Head head;
} Post;

typedef struct {
  Post *first, *last;
} Posts;

/* What has come before its receive. */
typedef struct Arrival {
  struct Arrival* next;
  uint64_t number;
  int is_bye, ahead;
  void* remote; /* UCX's descriptor of data that wait at the sender, or NULL */
  size_t bytes;
  char data[];
} Arrival;

/* A connection. Its address is UCX's: it is freed once UCX has closed the endpoint. */
typedef struct End {
  struct End* next;
  Transport* transport;
  ucp_ep_h ep;
  int failed;
  void* closing; /* request */
  /* Of a listener's, until a connect takes it. */
  int has_hello, told_heard;
  uint64_t their_number, since_ms;
  uint8_t id[HETCCL_TRANSPORT_ID_BYTES];
} End;

struct Channel {
  Channel* next;
  Transport* transport;
  End* end;
  uint64_t number, their_number;                  /* 0: no welcome yet */
  Posts sends, receives;                          /* not counted as complete */
  int under_way;                                  /* posts that UCX has */
  uint64_t sent, received;                        /* complete */
  uint64_t next_send, next_receive, next_number;  /* numbers: of posts, and of what comes */
  uint64_t ahead, their_taken, taken, told_taken; /* bytes sent ahead: by this end, by the other */
  Arrival* arrivals;                              /* by number */
  int heard, gone, broken, closed, bye_heard;     /* gone: nothing more comes */
  uint64_t closed_ms;
};

struct Transport {
  pthread_mutex_t mutex; /* connect comes from any thread: of all that follows */
  ucp_context_h context;
  ucp_worker_h worker;
  ucp_listener_h listeners[kMostHosts];
  int n_listeners;
  ucp_conn_request_h requests[kMostStrangers];
  int n_requests;
  int epoll, bell, rung;
  int armed;
  uint64_t armed_ms;
  End *strangers, *closing; /* oldest first; closed, with UCX */
  Channel* channels;        /* those that are closed and linger, too */
};

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

static uint64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void push(Posts* posts, Post* post) {
  post->next = NULL;
  if (posts->last != NULL)
    posts->last->next = post;
  else
    posts->first = post;
  posts->last = post;
}

static void pop(Posts* posts) {
  Post* first = posts->first;
  posts->first = first->next;
  if (posts->first == NULL) posts->last = NULL;
  free(first);
}

static Channel* channel_of(Transport* transport, uint64_t number) {
  Channel* channel = transport->channels;
  while (channel != NULL && channel->number != number) channel = channel->next;
  return channel;
}

/* --- ends */

static void on_error(void* arg, ucp_ep_h ep, ucs_status_t status) {
  (void)ep;
  (void)status;
  ((End*)arg)->failed = 1;
}

static End* make_end(Transport* transport, ucp_ep_params_t* params) {
  End* end = calloc(1, sizeof *end);
  if (end == NULL) return NULL;
  params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler.cb = on_error;
  params->err_handler.arg = end;
  end->transport = transport;
  end->since_ms = now_ms();
  if (ucp_ep_create(transport->worker, params, &end->ep) == UCS_OK) return end;
  free(end);
  return NULL;
}

/* UCX lets go of it later: see free_ends. */
static void close_end(End* end) {
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
  end->closing = ucp_ep_close_nbx(end->ep, &param);
  end->next = end->transport->closing;
  end->transport->closing = end;
}

static void free_ends(Transport* transport) {
  for (End** at = &transport->closing; *at != NULL;) {
    End* end = *at;
    if (UCS_PTR_IS_PTR(end->closing) && ucp_request_check_status(end->closing) == UCS_INPROGRESS) {
      at = &end->next;
      continue;
    }
    if (UCS_PTR_IS_PTR(end->closing)) ucp_request_free(end->closing);
    *at = end->next;
    free(end);
  }
}

/* --- sending */

static void on_sent(void* request, ucs_status_t status, void* arg) {
  Post* post = arg;
  ucp_request_free(request);
  if (post->channel == NULL) {
    free(post);
    return;
  }
  post->done = status == UCS_OK;
  --post->channel->under_way;
  if (status != UCS_OK) post->channel->gone = 1;
}

/* False where it cannot be sent. Without a channel it is freed once it is sent. */
static int start_send(ucp_ep_h ep, Post* post, uint32_t flags) {
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = flags,
                                     .cb.send = on_sent,
                                     .user_data = post};
  if (post->channel != NULL) ++post->channel->under_way;
  void* request =
      ucp_am_send_nbx(ep, 0, &post->head, sizeof post->head, post->data, post->bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return 1;
  post->done = request == NULL;
  if (post->channel != NULL)
    --post->channel->under_way;
  else
    free(post);
  return request == NULL;
}

/* A message of the adaptor's own. */
static void tell(End* end, Kind kind, uint64_t to, uint64_t value, const uint8_t* id) {
  Post* post = calloc(1, sizeof *post);
  if (post == NULL || end->failed) {
    free(post);
    return;
  }
  post->head.to = to;
  post->head.value = value;
  post->head.kind = kind;
  if (id != NULL) memcpy(post->head.id, id, sizeof post->head.id);
  start_send(end->ep, post, kind == kHello ? UCP_AM_SEND_FLAG_REPLY : 0);
}

/* Small messages go ahead of their receives until the peer may hold kAheadBytes; then data
 * wait here. */
static void send_post(Channel* channel, Post* post) {
  const int fits = channel->ahead + post->bytes - channel->their_taken <= (uint64_t)kAheadBytes;
  if (fits) channel->ahead += post->bytes;
  post->head.ahead = fits ? 1 : 0;
  if (channel->end->failed || channel->gone ||
      !start_send(channel->end->ep, post, fits ? 0 : UCP_AM_SEND_FLAG_RNDV))
    channel->gone = 1;
}

static int post_send(void* arg, const void* data, size_t bytes) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  Post* post = calloc(1, sizeof *post);
  if (post == NULL) return kNoMemory;
  post->channel = channel;
  post->data = (void*)data;
  post->bytes = bytes;
  post->head.kind = kData;
  post->head.to = channel->their_number;
  pthread_mutex_lock(&transport->mutex);
  post->head.value = channel->next_send++;
  push(&channel->sends, post);
  send_post(channel, post);
  transport->armed = 0;
  pthread_mutex_unlock(&transport->mutex);
  return 0;
}

/* --- receiving */

static void on_received(void* request, ucs_status_t status, size_t bytes, void* arg) {
  Post* post = arg;
  (void)bytes;
  ucp_request_free(request);
  post->done = status == UCS_OK;
  --post->channel->under_way;
  if (status != UCS_OK) post->channel->gone = 1;
}

/* Fetches what waits at the sender. */
static void fetch(Channel* channel, Post* post, void* remote) {
  const ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
      .cb.recv_am = on_received,
      .user_data = post};
  ++channel->under_way;
  void* request =
      ucp_am_recv_data_nbx(channel->transport->worker, remote, post->data, post->bytes, &param);
  if (UCS_PTR_IS_PTR(request)) return;
  --channel->under_way;
  if (request == NULL)
    post->done = 1;
  else
    channel->gone = 1;
}

static Post* next_receive(Channel* channel) {
  Post* post = channel->receives.first;
  while (post != NULL && post->started) post = post->next;
  return post;
}

/* Keeps what came early, or in another order. What is left alone UCX drops. */
static ucs_status_t keep(Channel* channel, const Head* head, void* data, size_t bytes, int remote) {
  Arrival* arrival = malloc(sizeof *arrival + (remote ? 0 : bytes));
  if (arrival == NULL) {
    channel->broken = 1;
    return UCS_OK;
  }
  arrival->number = head->value;
  arrival->is_bye = head->kind == kBye;
  arrival->ahead = head->ahead != 0;
  arrival->remote = remote ? data : NULL;
  arrival->bytes = bytes;
  if (!remote && bytes > 0) memcpy(arrival->data, data, bytes);
  Arrival** at = &channel->arrivals;
  while (*at != NULL && (*at)->number < arrival->number) at = &(*at)->next;
  arrival->next = *at;
  *at = arrival;
  return remote ? UCS_INPROGRESS : UCS_OK;
}

static ucs_status_t on_data(Channel* channel, const Head* head, void* data, size_t bytes,
                            int remote) {
  if (channel->closed || channel->their_number == 0 || head->value < channel->next_number)
    return UCS_OK;
  Post* post = next_receive(channel);
  if (remote || head->kind == kBye || post == NULL || head->value != channel->next_number ||
      channel->arrivals != NULL || post->bytes != bytes)
    return keep(channel, head, data, bytes, remote);
  memcpy(post->data, data, bytes);
  post->started = post->done = 1;
  ++channel->next_number;
  if (head->ahead != 0) channel->taken += bytes;
  return UCS_OK;
}

/* What has come meets what is posted. */
static void match(Channel* channel) {
  Post* post = next_receive(channel);
  while (channel->arrivals != NULL && channel->arrivals->number == channel->next_number &&
         !channel->broken) {
    Arrival* arrival = channel->arrivals;
    if (arrival->is_bye) {
      channel->gone = 1;
      tell(channel->end, kByeHeard, channel->their_number, 0, NULL);
    } else if (post == NULL) {
      return;
    } else if (arrival->bytes != post->bytes) {
      channel->broken = 1;
      return;
    } else {
      post->started = 1;
      if (arrival->remote != NULL) {
        fetch(channel, post, arrival->remote);
      } else {
        memcpy(post->data, arrival->data, post->bytes);
        post->done = 1;
      }
      if (arrival->ahead) channel->taken += arrival->bytes;
      post = next_receive(channel);
    }
    ++channel->next_number;
    channel->arrivals = arrival->next;
    free(arrival);
  }
}

static int post_receive(void* arg, void* data, size_t bytes) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  Post* post = calloc(1, sizeof *post);
  if (post == NULL) return kNoMemory;
  post->channel = channel;
  post->data = data;
  post->bytes = bytes;
  pthread_mutex_lock(&transport->mutex);
  push(&channel->receives, post);
  match(channel);
  transport->armed = 0;
  pthread_mutex_unlock(&transport->mutex);
  return 0;
}

static int completed(void* arg, uint64_t* sends, uint64_t* receives) {
  Channel* channel = arg;
  pthread_mutex_lock(&channel->transport->mutex);
  while (channel->sends.first != NULL && channel->sends.first->done && !channel->gone) {
    pop(&channel->sends);
    ++channel->sent;
  }
  while (channel->receives.first != NULL && channel->receives.first->done) {
    pop(&channel->receives);
    ++channel->received;
  }
  *sends = channel->sent;
  *receives = channel->received;
  const Arrival* next = channel->arrivals;
  const int has_more = next != NULL && next->number == channel->next_number && next->remote == NULL;
  const int code = channel->broken                                        ? kBroken
                   : (channel->gone || channel->end->failed) && !has_more ? kGone
                                                                          : 0;
  pthread_mutex_unlock(&channel->transport->mutex);
  return code;
}

/* --- what comes */

static void on_hello(Transport* transport, const Head* head, const ucp_am_recv_param_t* param) {
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return;
  for (End* end = transport->strangers; end != NULL; end = end->next) {
    if (end->ep != param->reply_ep || end->has_hello) continue;
    end->has_hello = 1;
    end->their_number = head->value;
    memcpy(end->id, head->id, sizeof end->id);
  }
}

static ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* param) {
  Transport* transport = arg;
  const int remote = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  Head head;
  if (header_bytes != sizeof head) return UCS_OK;
  memcpy(&head, header, sizeof head);
  if (head.kind == kHello) {
    on_hello(transport, &head, param);
    return UCS_OK;
  }
  Channel* channel = channel_of(transport, head.to);
  if (channel == NULL) return UCS_OK;
  switch ((Kind)head.kind) {
    case kHeard:
      channel->heard = 1;
      break;
    case kWelcome:
      if (channel->their_number == 0) channel->their_number = head.value;
      break;
    case kCredit:
      if (head.value > channel->their_taken && head.value <= channel->ahead)
        channel->their_taken = head.value;
      break;
    case kByeHeard:
      channel->bye_heard = 1;
      break;
    case kData:
    case kBye:
      return on_data(channel, &head, data, bytes, remote);
    default:
      break;
  }
  return UCS_OK;
}

static void on_request(ucp_conn_request_h request, void* arg) {
  Transport* transport = arg;
  if (transport->n_requests < kMostStrangers)
    transport->requests[transport->n_requests++] = request;
  else
    ucp_listener_reject(transport->listeners[0], request);
}

/* The oldest go where there are too many, or have said nothing for long. */
static void look_at_strangers(Transport* transport) {
  End** last = &transport->strangers;
  int n = 0;
  for (; *last != NULL; last = &(*last)->next) ++n;
  for (int i = 0; i < transport->n_requests; ++i) {
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST,
                              .conn_request = transport->requests[i]};
    *last = make_end(transport, &params);
    if (*last == NULL) continue;
    last = &(*last)->next;
    ++n;
  }
  transport->n_requests = 0;
  const uint64_t now = now_ms();
  for (End** at = &transport->strangers; *at != NULL;) {
    End* end = *at;
    const int is_late = !end->has_hello && now - end->since_ms > kStrangerMs;
    if (end->failed || n > kMostStrangers || is_late) {
      *at = end->next;
      close_end(end);
      --n;
      continue;
    }
    if (end->has_hello && !end->told_heard) {
      end->told_heard = 1;
      tell(end, kHeard, end->their_number, 0, NULL);
    }
    at = &end->next;
  }
}

/* --- channels */

static void free_channel(Channel* channel) {
  Transport* transport = channel->transport;
  for (Channel** at = &transport->channels; *at != NULL; at = &(*at)->next) {
    if (*at != channel) continue;
    *at = channel->next;
    break;
  }
  while (channel->sends.first != NULL) pop(&channel->sends);
  while (channel->receives.first != NULL) pop(&channel->receives);
  while (channel->arrivals != NULL) {
    Arrival* first = channel->arrivals;
    channel->arrivals = first->next;
    if (first->remote != NULL) ucp_am_data_release(transport->worker, first->remote);
    free(first);
  }
  if (channel->end != NULL) close_end(channel->end);
  free(channel);
}

static void look_at_channels(Transport* transport) {
  for (Channel *channel = transport->channels, *next = NULL; channel != NULL; channel = next) {
    next = channel->next;
    if (channel->closed) {
      const int is_late = now_ms() - channel->closed_ms > kLingerMs;
      if (channel->bye_heard || channel->end->failed || is_late) free_channel(channel);
      continue;
    }
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

static void pause_in_connect(const hetcclTransportPeer* peer, Transport* transport, int* tired_us) {
  (void)peer;
  pthread_mutex_unlock(&transport->mutex);
  const struct timespec rest = {0, *tired_us * 1000};
  nanosleep(&rest, NULL);
  if (*tired_us < 1000) *tired_us *= 2;
  pthread_mutex_lock(&transport->mutex);
}

/* Takes what its work moved to the thread that sleeps on the descriptor. */
static void work_in_connect(Transport* transport) {
  transport->armed = 0;
  work(transport);
  ring(transport);
}

/* Takes the peer's hello. */
static int await_hello(Transport* transport, const hetcclTransportPeer* peer, Channel* channel) {
  for (int tired_us = 20;; pause_in_connect(peer, transport, &tired_us)) {
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
  for (int tired_us = 20; channel->their_number == 0;
       pause_in_connect(peer, transport, &tired_us)) {
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
      tired_us = 20;
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
    if (channel->under_way == 0) free_channel(channel);
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
  while (transport->channels != NULL && now_ms() < end) work(transport);
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
