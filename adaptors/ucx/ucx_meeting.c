/* Two ends meet: side 0 dials side 1's listener and sends a hello with the channel's id. Once side
 * 1's `connect` runs, it answers with its hello and a proof, side 0 sends its own proof, and side 1
 * a final byte. UCX's own listener is not used, because garbage sent to it ends the process (UCX
 * 1.13). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ucx.h"

/* Never blocks: a new socket has room for these few bytes. */
static int send_words(int fd, const void* words, size_t bytes) {
  return send(fd, words, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)bytes;
}

/* Computes the proof of end `side`: that it knows the key, and has sent and received these hellos.
 */
static void prove(const hetcclTransportPeer* peer, int side, const Hello* first,
                  const Hello* second, uint8_t* code) {
  Proof proof;
  const uint8_t which = (uint8_t)side;
  begin_proof(&proof, peer->key);
  add_to_proof(&proof, &which, sizeof which);
  add_to_proof(&proof, first, sizeof *first);
  add_to_proof(&proof, second, sizeof *second);
  end_proof(&proof, code);
}

/* Answers any number of guests that ask for this channel, since its id has been on the wire.
 * Returns the guest that has proven to be the other end, or NULL. */
static Guest** find_end(Transport* transport, const hetcclTransportPeer* peer, const Hello* own) {
  for (Guest** at = &transport->guests; *at != NULL; at = &(*at)->next) {
    Guest* guest = *at;
    uint8_t proof[kProofBytes];
    if (guest->host == NULL && guest->got == sizeof guest->words.hello &&
        memcmp(guest->words.hello.id, peer->id, sizeof peer->id) == 0) {
      Words answer = {.hello = *own};
      prove(peer, 1, &guest->words.hello, own, answer.proof);
      guest->host = peer;
      if (!send_words(guest->fd, &answer, kProvenBytes)) guest->since_ms = 0; /* it will be dropped soon */
    }
    if (guest->host != peer || guest->got != kProvenBytes) continue;
    prove(peer, 0, &guest->words.hello, own, proof);
    if (is_same_proof(proof, guest->words.proof) && send_words(guest->fd, "", 1)) return at;
    guest->since_ms = 0;
  }
  return NULL;
}

static int await_guest(Transport* transport, const hetcclTransportPeer* peer, const Hello* own,
                       Hello* theirs) {
  int fd = -1;
  for (int us = 20; fd < 0; rest(transport, &us)) {
    if (work(transport)) ring(transport);
    serve_guests(transport);
    Guest** at = find_end(transport, peer, own);
    if (at != NULL) {
      Guest* guest = *at;
      fd = guest->fd;
      *theirs = guest->words.hello;
      *at = guest->next;
      free(guest);
      break;
    }
    if (peer->given_up(peer->context)) break;
  }
  for (Guest* guest = transport->guests; guest != NULL; guest = guest->next)
    if (guest->host == peer) guest->since_ms = 0; /* `peer` is invalid after this call */
  return fd;
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

/* Returns 1 once a dialled socket is connected, -1 if it will not be. */
static int is_connected(int fd) {
  struct pollfd entry = {fd, POLLOUT, 0};
  int failure = 0;
  socklen_t bytes = sizeof failure;
  if (poll(&entry, 1, 0) != 1) return 0;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) == 0 && failure == 0 ? 1 : -1;
}

/* Whether the answer comes from the other end, which then gets this end's proof. */
static int take_answer(int fd, const hetcclTransportPeer* peer, const Hello* own,
                       const Words* answer) {
  uint8_t proof[kProofBytes];
  if (memcmp(answer->hello.id, peer->id, sizeof peer->id) != 0) return 0;
  prove(peer, 1, own, &answer->hello, proof);
  if (!is_same_proof(proof, answer->proof)) return 0;
  prove(peer, 0, own, &answer->hello, proof);
  return send_words(fd, proof, sizeof proof);
}

/* Tries the peer's addresses in turn. An address that accepts the hello may answer late. */
static int visit(Transport* transport, const hetcclTransportPeer* peer, const Hello* own,
                 Hello* theirs) {
  Words answer;
  const Where* addresses = peer->address;
  const size_t n = peer->address_bytes / sizeof *addresses;
  uint64_t dialled_ms = 0;
  size_t next = 0, got = 0, wanted = kProvenBytes;
  int fd = -1, has_said = 0;
  for (int us = 20;; rest(transport, &us)) {
    const uint64_t now = now_ms();
    if (fd < 0 && now - dialled_ms > kRedialMs) {
      fd = dial(&addresses[next++ % n]);
      dialled_ms = now;
      has_said = 0;
      got = 0;
      wanted = kProvenBytes;
      us = 20;
    }
    int state = 0;
    if (fd >= 0 && !has_said) {
      state = is_connected(fd);
      if (state == 1) state = send_words(fd, own, sizeof *own) ? 0 : -1, has_said = 1;
      if (!has_said && now - dialled_ms > kDialMs) state = -1;
    }
    if (fd >= 0 && has_said && state == 0) state = read_words(fd, &answer, wanted, &got);
    if (state == 1 && wanted == kAcceptedBytes) {
      *theirs = answer.hello;
      return fd;
    }
    if (state == 1 && take_answer(fd, peer, own, &answer)) {
      wanted = kAcceptedBytes;
      state = 0;
    }
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
