/* Messages: sends and receives match by number, since UCX does not keep the order of active
 * messages. */
#include <stdlib.h>
#include <string.h>

#include "ucx.h"

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

/* --- sending */

static void on_sent(void* request, ucs_status_t status, void* arg) {
  Post* post = arg;
  ucp_request_free(request);
  if (status != UCS_OK) post->channel->gone = 1;
  if (post->is_own) {
    free(post);
    return;
  }
  post->done = status == UCS_OK;
  --post->channel->under_way;
}

/* Messages of the adaptor's own are freed once they are sent. */
static void start_send(Post* post, uint32_t flags) {
  Channel* channel = post->channel;
  const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                     UCP_OP_ATTR_FIELD_USER_DATA |
                                                     UCP_OP_ATTR_FIELD_FLAGS,
                                     .flags = flags,
                                     .cb.send = on_sent,
                                     .user_data = post};
  void* request = ucp_am_send_nbx(channel->ep, 0, &post->head, sizeof post->head, post->data,
                                  post->bytes, &param);
  if (UCS_PTR_IS_ERR(request)) channel->gone = 1;
  if (UCS_PTR_IS_PTR(request)) {
    if (!post->is_own) ++channel->under_way;
  } else if (post->is_own) {
    free(post);
  } else {
    post->done = request == NULL;
  }
}

static Post* make_post(Channel* channel, void* data, size_t bytes) {
  Post* post = calloc(1, sizeof *post);
  if (post == NULL) return NULL;
  post->channel = channel;
  post->data = data;
  post->bytes = bytes;
  post->head.kind = kData;
  post->head.to = channel->their_number;
  return post;
}

void send_control(Channel* channel, Kind kind, uint64_t value) {
  Post* post = channel->gone ? NULL : make_post(channel, NULL, 0);
  if (post == NULL) return;
  post->is_own = 1;
  post->head.kind = kind;
  post->head.value = value;
  start_send(post, 0);
}

/* Small messages are sent ahead of their receives until the peer may hold kAheadBytes; beyond that,
 * data waits here. */
static void send_post(Channel* channel, Post* post) {
  const int fits = channel->ahead + post->bytes - channel->their_taken <= (uint64_t)kAheadBytes;
  if (fits) channel->ahead += post->bytes;
  post->head.ahead = fits ? 1 : 0;
  if (!channel->gone) start_send(post, fits ? 0 : UCP_AM_SEND_FLAG_RNDV);
}

int post_send(void* arg, const void* data, size_t bytes) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  pthread_mutex_lock(&transport->mutex);
  Post* post = make_post(channel, (void*)data, bytes);
  if (post != NULL) {
    post->head.value = channel->next_send++;
    push(&channel->sends, post);
    send_post(channel, post);
    transport->armed = 0;
  }
  pthread_mutex_unlock(&transport->mutex);
  return post != NULL ? 0 : kNoMemory;
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

/* Fetches data that waits at the sender. */
static void fetch(Channel* channel, Post* post, void* remote) {
  const ucp_request_param_t param = {
      .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
      .cb.recv_am = on_received,
      .user_data = post};
  ++channel->under_way;
  void* request = ucp_am_recv_data_nbx(channel->worker, remote, post->data, post->bytes, &param);
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

static void count_arrival(Channel* channel, const Arrival* arrival, int change) {
  const int is_here = arrival->remote == NULL && !arrival->is_bye;
  if (is_here) channel->held_bytes += change < 0 ? -arrival->bytes : arrival->bytes;
  if (arrival->remote != NULL) channel->waiting += (size_t)change;
}

/* Keeps a message that is early or out of order. UCX drops messages that are left alone. The other
 * end sends at most kAheadBytes ahead: more comes from a stranger who has seen the channel's
 * number. */
static ucs_status_t keep(Channel* channel, const Head* head, void* data, size_t bytes, int remote) {
  const int fits =
      remote ? channel->waiting < kMostWaiting : bytes + channel->held_bytes <= kAheadBytes;
  Arrival* arrival = fits ? malloc(sizeof *arrival + (remote ? 0 : bytes)) : NULL;
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
  count_arrival(channel, arrival, 1);
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
      send_control(channel, kByeHeard, 0);
      channel->gone = 1;
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
    count_arrival(channel, arrival, -1);
    free(arrival);
  }
}

int post_receive(void* arg, void* data, size_t bytes) {
  Channel* channel = arg;
  Transport* transport = channel->transport;
  pthread_mutex_lock(&transport->mutex);
  Post* post = make_post(channel, data, bytes);
  if (post != NULL) {
    push(&channel->receives, post);
    match(channel);
    transport->armed = 0;
  }
  pthread_mutex_unlock(&transport->mutex);
  return post != NULL ? 0 : kNoMemory;
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
  const int code = channel->broken ? kBroken : channel->gone && !has_more ? kGone : 0;
  pthread_mutex_unlock(&channel->transport->mutex);
  return code;
}

void free_posts(Channel* channel) {
  while (channel->sends.first != NULL) pop(&channel->sends);
  while (channel->receives.first != NULL) pop(&channel->receives);
}

void free_arrivals(Channel* channel) {
  while (channel->arrivals != NULL) {
    Arrival* first = channel->arrivals;
    channel->arrivals = first->next;
    if (first->remote != NULL) ucp_am_data_release(channel->worker, first->remote);
    free(first);
  }
}

/* --- arrivals */

ucs_status_t on_message(void* arg, const void* header, size_t header_bytes, void* data,
                        size_t bytes, const ucp_am_recv_param_t* param) {
  Channel* channel = arg;
  const int remote = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  Head head;
  if (header_bytes != sizeof head) return UCS_OK;
  memcpy(&head, header, sizeof head);
  if (head.to != channel->number) return UCS_OK; /* from a stranger */
  switch ((Kind)head.kind) {
    case kCredit:
      if (head.value > channel->their_taken && head.value <= channel->ahead)
        channel->their_taken = head.value;
      return UCS_OK;
    case kByeHeard:
      channel->bye_heard = 1;
      return UCS_OK;
    case kData:
    case kBye:
      return on_data(channel, &head, data, bytes, remote);
    default:
      return UCS_OK;
  }
}
