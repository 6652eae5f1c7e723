/* What the two files of the adaptor by UCX share. */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#include "hetccl/adaptor.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "heads and addresses travel in little endian"
#endif

#pragma GCC visibility push(hidden)

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
  int heard, gone, broken, closed, bye_came, bye_heard; /* gone: nothing more comes */
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

uint64_t now_ms(void);

/* Connections. All with the transport's mutex held. */

/* NULL where UCX makes none. */
End* make_end(Transport* transport, ucp_ep_params_t* params);
/* UCX lets go of it later: see free_ends. */
void close_end(End* end);
void free_ends(Transport* transport);
/* Accepts what has come, and drops the oldest where there are too many, or have said nothing for
 * long. */
void look_at_strangers(Transport* transport);
/* Sends a message of the adaptor's own. */
void tell(End* end, Kind kind, uint64_t to, uint64_t value, const uint8_t* id);

/* Messages. */

/* What has come meets what is posted. With the mutex held. */
void match(Channel* channel);
/* Frees posts and arrivals that UCX does not have. */
void free_messages(Channel* channel);
/* Calls of the table, which take the mutex. */
int post_send(void* channel, const void* data, size_t bytes);
int post_receive(void* channel, void* data, size_t bytes);
int completed(void* channel, uint64_t* sends, uint64_t* receives);
/* UCX calls them. */
ucs_status_t on_message(void* transport, const void* header, size_t header_bytes, void* data,
                        size_t bytes, const ucp_am_recv_param_t* param);
void on_request(ucp_conn_request_h request, void* transport);

#pragma GCC visibility pop
