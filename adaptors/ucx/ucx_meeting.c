/* How two ends meet: side 0 dials where side 1's process listens and says hello, with the channel's
 * id, which no stranger knows. Side 1 says hello once it connects, too. UCX's own listener is not
 * used: it ends the process if somebody sends it nonsense (UCX 1.13). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ucx.h"

static socklen_t address_of(const Where* where, struct sockaddr_storage* storage) {
  struct sockaddr_in* v4 = (struct sockaddr_in*)storage;
  struct sockaddr_in6* v6 = (struct sockaddr_in6*)storage;
  memset(storage, 0, sizeof *storage);
  if (where->family == 4) {
    v4->sin_family = AF_INET;
    v4->sin_port = where->port;
    memcpy(&v4->sin_addr, where->ip, 4);
    return sizeof *v4;
  }
  v6->sin6_family = AF_INET6;
  v6->sin6_port = where->port;
  memcpy(&v6->sin6_addr, where->ip, 16);
  return sizeof *v6;
}

static void watch(Transport* transport, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  epoll_ctl(transport->epoll, EPOLL_CTL_ADD, fd, &event);
}

int listen_at(Transport* transport, const char* host, Where* where) {
  struct sockaddr_storage storage;
  memset(where, 0, sizeof *where);
  where->family = strchr(host, ':') != NULL ? 6 : 4;
  if (inet_pton(where->family == 6 ? AF_INET6 : AF_INET, host, where->ip) != 1) return 0;
  socklen_t bytes = address_of(where, &storage);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return 0;
  if (bind(fd, (struct sockaddr*)&storage, bytes) != 0 || listen(fd, kMostGuests) != 0 ||
      getsockname(fd, (struct sockaddr*)&storage, &bytes) != 0) {
    close(fd);
    return 0;
  }
  where->port = where->family == 4 ? ((struct sockaddr_in*)&storage)->sin_port
                                   : ((struct sockaddr_in6*)&storage)->sin6_port;
  watch(transport, fd);
  transport->listeners[transport->n_listeners++] = fd;
  return 1;
}

/* --- guests */

/* 1 once the hello is whole; 0 before; -1 if it will not be: the other end has gone, or says what
 * is none. */
static int read_hello(int fd, Hello* hello, size_t* got) {
  while (1) {
    char more = 0;
    const int is_whole = *got == sizeof *hello;
    const ssize_t n = is_whole ? recv(fd, &more, 1, MSG_DONTWAIT)
                               : recv(fd, (char*)hello + *got, sizeof *hello - *got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return is_whole;
    if (n <= 0 || is_whole) return -1;
    *got += (size_t)n;
    if (*got >= sizeof hello->magic && memcmp(hello->magic, kMagic, sizeof hello->magic) != 0)
      return -1;
    if (*got == sizeof *hello && (hello->bytes == 0 || hello->bytes > sizeof hello->worker))
      return -1;
  }
}

static void accept_guests(Transport* transport, Guest** last) {
  for (int i = 0; i < transport->n_listeners; ++i) {
    for (int n = 0; n < 16; ++n) {
      const int fd = accept4(transport->listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) break;
      Guest* guest = calloc(1, sizeof *guest);
      if (guest == NULL) {
        close(fd);
        return;
      }
      guest->fd = fd;
      guest->since_ms = now_ms();
      watch(transport, fd);
      *last = guest;
      last = &guest->next;
    }
  }
}

void look_at_guests(Transport* transport) {
  Guest** last = &transport->guests;
  int n = 0;
  while (*last != NULL) last = &(*last)->next;
  accept_guests(transport, last);
  for (Guest* guest = transport->guests; guest != NULL; guest = guest->next) ++n;
  for (Guest** at = &transport->guests; *at != NULL;) {
    Guest* guest = *at;
    const int state = read_hello(guest->fd, &guest->hello, &guest->got);
    const int is_late = state == 0 && now_ms() - guest->since_ms > kGuestMs;
    if (state >= 0 && n <= kMostGuests && !is_late) {
      at = &guest->next;
      continue;
    }
    *at = guest->next;
    close(guest->fd);
    free(guest);
    --n;
  }
}

void drop_guests(Transport* transport) {
  while (transport->guests != NULL) {
    Guest* first = transport->guests;
    transport->guests = first->next;
    close(first->fd);
    free(first);
  }
  for (int i = 0; i < transport->n_listeners; ++i) close(transport->listeners[i]);
}

/* --- both sides of a meeting */

/* A new socket has room for it. */
static int say_hello(int fd, const Hello* own) {
  return send(fd, own, sizeof *own, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof *own;
}

static int await_guest(Transport* transport, const hetcclTransportPeer* peer, const Hello* own,
                       Hello* theirs) {
  for (int us = 20;; rest(transport, &us)) {
    if (work(transport)) ring(transport);
    look_at_guests(transport);
    for (Guest** at = &transport->guests; *at != NULL; at = &(*at)->next) {
      Guest* guest = *at;
      if (guest->got != sizeof guest->hello ||
          memcmp(guest->hello.id, peer->id, sizeof peer->id) != 0)
        continue;
      const int fd = guest->fd;
      *theirs = guest->hello;
      *at = guest->next;
      free(guest);
      if (say_hello(fd, own)) return fd;
      close(fd);
      break;
    }
    if (peer->given_up(peer->context)) return -1;
  }
}

static int dial(const Where* where) {
  struct sockaddr_storage storage;
  const socklen_t bytes = address_of(where, &storage);
  const int fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, (struct sockaddr*)&storage, bytes) == 0 || errno == EINPROGRESS) return fd;
  close(fd);
  return -1;
}

/* 1 once a dialled socket is connected, -1 if it will not be. */
static int is_connected(int fd) {
  struct pollfd entry = {fd, POLLOUT, 0};
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (poll(&entry, 1, 0) != 1) return 0;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) == 0 && failure == 0 ? 1 : -1;
}

/* At each of the peer's addresses in turn. One that takes the hello may answer late. */
static int visit(Transport* transport, const hetcclTransportPeer* peer, const Hello* own,
                 Hello* theirs) {
  const Where* addresses = peer->address;
  const size_t n = peer->address_bytes / sizeof *addresses;
  uint64_t dialled_ms = 0;
  size_t next = 0, got = 0;
  int fd = -1, has_said = 0;
  for (int us = 20;; rest(transport, &us)) {
    const uint64_t now = now_ms();
    if (fd < 0 && now - dialled_ms > kRedialMs) {
      fd = dial(&addresses[next++ % n]);
      dialled_ms = now;
      has_said = 0;
      got = 0;
      us = 20;
    }
    int state = 0;
    if (fd >= 0 && !has_said) {
      state = is_connected(fd);
      if (state == 1) state = say_hello(fd, own) ? 0 : -1, has_said = 1;
      if (!has_said && now - dialled_ms > kDialMs) state = -1;
    }
    if (fd >= 0 && has_said && state == 0) state = read_hello(fd, theirs, &got);
    if (state == 1 && memcmp(theirs->id, peer->id, sizeof peer->id) == 0) return fd;
    if (fd >= 0 && state != 0) {
      close(fd);
      fd = -1;
    }
    if (work(transport)) ring(transport);
    if (peer->given_up(peer->context)) break;
  }
  if (fd >= 0) close(fd);
  return -1;
}

int meet(Transport* transport, const hetcclTransportPeer* peer, const Hello* own, Hello* theirs,
         int* socket) {
  *socket = peer->side == 0 ? visit(transport, peer, own, theirs)
                            : await_guest(transport, peer, own, theirs);
  if (*socket < 0) return kGivenUp;
  if (peer->side == 0) watch(transport, *socket);
  return 0;
}
