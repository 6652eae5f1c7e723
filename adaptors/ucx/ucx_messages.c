/* Connections, and the messages that they carry. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ucx.h"

uint64_t now_ms(void) {
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

End* make_end(Transport* transport, ucp_ep_params_t* params) {
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

void close_end(End* end) {
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = UCP_EP_CLOSE_FLAG_FORCE};
  end->closing = ucp_ep_close_nbx(end->ep, &param);
  end->next = end->transport->closing;
  end->transport->closing = end;
}

void free_ends(Transport* transport) {
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

void tell(End* end, Kind kind, uint64_t to, uint64_t value, const uint8_t* id) {
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

int post_send(void* arg, const void* data, size_t bytes) {
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
  if (channel->closed && head->kind == kBye) channel->bye_came = 1;
  if (channel->closed || head->value < channel->next_number) return UCS_OK;
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

void match(Channel* channel) {
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

int post_receive(void* arg, void* data, size_t bytes) {
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

int completed(void* arg, uint64_t* sends, uint64_t* receives) {
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

void free_messages(Channel* channel) {
  while (channel->sends.first != NULL) pop(&channel->sends);
  while (channel->receives.first != NULL) pop(&channel->receives);
  while (channel->arrivals != NULL) {
    Arrival* first = channel->arrivals;
    channel->arrivals = first->next;
    if (first->remote != NULL) ucp_am_data_release(channel->transport->worker, first->remote);
    free(first);
  }
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

ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data,
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

void on_request(ucp_conn_request_h request, void* arg) {
  Transport* transport = arg;
  if (transport->n_requests < kMostStrangers)
    transport->requests[transport->n_requests++] = request;
  else
    ucp_listener_reject(transport->listeners[0], request);
}

void look_at_strangers(Transport* transport) {
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
