/* How two ends meet: side 0 dials where side 1's process listens and says hello, with the channel's
 * id, which no stranger knows. Side 1 says hello once it connects, too. UCX's own listener is not
 * used: it ends the process if somebody sends it nonsense (UCX 1.13). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ucx.h"

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
