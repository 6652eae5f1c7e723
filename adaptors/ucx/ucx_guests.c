/* Guests: clients of the listeners, which may be anybody, and their first words. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "ucx.h"

socklen_t address_of(const Where* where, struct sockaddr_storage* storage) {
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

void watch(Transport* transport, int fd) {
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

int read_words(int fd, Words* words, size_t wanted, size_t* got) {
  const Hello* hello = &words->hello;
  while (1) {
    char more = 0;
    const int is_whole = *got == wanted;
    const ssize_t n = is_whole ? recv(fd, &more, 1, MSG_DONTWAIT)
                               : recv(fd, (char*)words + *got, wanted - *got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return is_whole;
    if (n <= 0 || is_whole) return -1;
    *got += (size_t)n;
    if (*got >= sizeof hello->magic && memcmp(hello->magic, kMagic, sizeof hello->magic) != 0)
      return -1;
    if (*got >= sizeof *hello && (hello->bytes == 0 || hello->bytes > sizeof hello->worker))
      return -1;
  }
}

/* A listener with a client in its queue polls readable, so it is not watched while no client can be
 * accepted. */
static void pause_accepting(Transport* transport) {
  if (transport->deaf_until_ms == 0)
    for (int i = 0; i < transport->n_listeners; ++i)
      epoll_ctl(transport->epoll, EPOLL_CTL_DEL, transport->listeners[i], NULL);
  transport->deaf_until_ms = now_ms() + kDeafMs;
}

static void accept_guests(Transport* transport, Guest** last) {
  if (transport->deaf_until_ms > now_ms()) return;
  for (int i = 0; i < transport->n_listeners; ++i) {
    for (int n = 0; n < 16; ++n) {
      const int fd = accept4(transport->listeners[i], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
      const int is_out =
          fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
      Guest* guest = fd >= 0 ? calloc(1, sizeof *guest) : NULL;
      if (is_out || (fd >= 0 && guest == NULL)) {
        if (fd >= 0) close(fd);
        pause_accepting(transport);
        return;
      }
      if (fd < 0) break;
      guest->fd = fd;
      guest->since_ms = now_ms();
      watch(transport, fd);
      *last = guest;
      last = &guest->next;
    }
  }
  if (transport->deaf_until_ms == 0) return;
  transport->deaf_until_ms = 0;
  for (int i = 0; i < transport->n_listeners; ++i) watch(transport, transport->listeners[i]);
}

void serve_guests(Transport* transport) {
  Guest** last = &transport->guests;
  int n = 0;
  while (*last != NULL) last = &(*last)->next;
  accept_guests(transport, last);
  for (Guest* guest = transport->guests; guest != NULL; guest = guest->next) ++n;
  for (Guest** at = &transport->guests; *at != NULL;) {
    Guest* guest = *at;
    const size_t wanted = guest->host != NULL ? kProvenBytes : sizeof guest->words.hello;
    const int state = read_words(guest->fd, &guest->words, wanted, &guest->got);
    const int is_late =
        now_ms() - guest->since_ms > kGuestMs && (state == 0 || guest->host != NULL);
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
