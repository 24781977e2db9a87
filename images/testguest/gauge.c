/* gauge: how fast a file or a connection is, for make bench-disks and make bench-network; the same program in the guest and outside.
 *
 *   gauge file PATH sequential|random read|write BYTES JOBS SECONDS   each job reads or writes BYTES at a time, with O_DIRECT
 *   gauge serve PORT                                                  the peer of the following three, until it is ended
 *   gauge send|receive HOST PORT SECONDS                              one TCP connection, all that goes through
 *   gauge connect HOST PORT JOBS SECONDS                              each job makes a connection, gets a byte, and makes the next
 *
 * It prints one line, "gauge operations=N bytes=N microseconds=N", and exits with 1 where something failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_JOBS = 64, CHUNK = 1 << 17, SERVERS = 4 };

struct count { uint64_t operations, bytes; };

static void fail(const char *what) { fprintf(stderr, "gauge: %s: %s\n", what, strerror(errno)); exit(1); }

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000ull + time.tv_nsec / 1000;
}

static long number(const char *text, long most) {
  char *end;
  long value = strtol(text, &end, 10);
  if (*end || value < 1 || value > most) { fprintf(stderr, "gauge: %s is not from 1 to %ld\n", text, most); exit(2); }
  return value;
}

static void say(struct count count, uint64_t begun) {
  printf("gauge operations=%llu bytes=%llu microseconds=%llu\n", (unsigned long long)count.operations, (unsigned long long)count.bytes,
         (unsigned long long)(now() - begun));
}

/* Runs as many processes, each with a count of its own, and says the sum. */
static void together(long jobs, void (*work)(long job, uint64_t until, struct count *count), long seconds) {
  struct count *counts = mmap(NULL, sizeof(struct count) * MAX_JOBS, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), sum = {0, 0};
  if (counts == MAP_FAILED) fail("mmap");
  uint64_t begun = now();
  for (long job = 0; job < jobs; job++) {
    pid_t child = fork();
    if (child < 0) fail("fork");
    if (!child) { work(job, begun + seconds * 1000000ull, &counts[job]); exit(0); }
  }
  int status, failed = 0;
  while (wait(&status) > 0) failed |= status;
  if (failed) exit(1);
  for (long job = 0; job < jobs; job++) sum.operations += counts[job].operations, sum.bytes += counts[job].bytes;
  say(sum, begun);
}

static const char *path;
static int random_places, writes;
static long length, jobs;

static void file_job(long job, uint64_t until, struct count *count) {
  int file = open(path, (writes ? O_RDWR : O_RDONLY) | O_DIRECT);
  if (file < 0) fail(path);
  struct stat found;
  uint64_t size;
  if (fstat(file, &found)) fail("fstat");
  if (!S_ISBLK(found.st_mode)) size = found.st_size;
  else if (ioctl(file, BLKGETSIZE64, &size)) fail("BLKGETSIZE64");
  uint64_t places = size / length, place = places / jobs * job, seed = 88172645463325252ull + job;
  if (places < (uint64_t)jobs) { fprintf(stderr, "gauge: %s is too small\n", path); exit(1); }
  void *buffer;
  if (posix_memalign(&buffer, 4096, length)) fail("posix_memalign");
  for (long at = 0; at < length; at++) ((char *)buffer)[at] = at * 131 + at / 4096;
  while (now() < until) {
    if (random_places) seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17, place = seed % places;
    ssize_t done = writes ? pwrite(file, buffer, length, place * length) : pread(file, buffer, length, place * length);
    if (done != length) fail(writes ? "pwrite" : "pread");
    place = (place + 1) % places, count->operations++, count->bytes += done;
  }
  if (writes && fdatasync(file)) fail("fdatasync");
}

static struct addrinfo *peer;

static int connected(char wish) {
  int link = socket(peer->ai_family, SOCK_STREAM, 0);
  if (link < 0 || connect(link, peer->ai_addr, peer->ai_addrlen)) fail("connect");
  if (write(link, &wish, 1) != 1) fail("write");
  return link;
}

static void connect_job(long job, uint64_t until, struct count *count) {
  (void)job;
  struct linger at_once = {1, 0}; /* the end is a reset: no address waits afterwards */
  while (now() < until) {
    char byte;
    int link = connected('c');
    if (read(link, &byte, 1) != 1) fail("read");
    setsockopt(link, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(link);
    count->operations++, count->bytes++;
  }
}

static char chunk[CHUNK];

static void send_for(long seconds) {
  struct count count = {0, 0};
  uint64_t begun = now(), until = begun + seconds * 1000000ull, heard;
  int link = connected('s');
  while (now() < until) {
    ssize_t done = write(link, chunk, CHUNK);
    if (done < 0) fail("write");
    count.operations++;
  }
  shutdown(link, SHUT_WR);
  if (recv(link, &heard, sizeof heard, MSG_WAITALL) != sizeof heard) fail("the peer's count");
  count.bytes = heard; /* what the peer has, when it has it */
  say(count, begun);
}

static void receive_for(long seconds) {
  struct count count = {0, 0};
  uint64_t begun = now(), until = begun + seconds * 1000000ull;
  int link = connected('r');
  while (now() < until) {
    ssize_t done = read(link, chunk, CHUNK);
    if (done <= 0) fail("read");
    count.operations++, count.bytes += done;
  }
  say(count, begun);
}

static void serve_one(int link) {
  char wish;
  uint64_t heard = 0;
  ssize_t done;
  if (read(link, &wish, 1) != 1) return;
  if (wish == 'c') { if (write(link, &wish, 1) == 1) while (read(link, chunk, CHUNK) > 0) {} }
  if (wish == 'r') while (write(link, chunk, CHUNK) > 0) {}
  if (wish == 's') {
    while ((done = read(link, chunk, CHUNK)) > 0) heard += done;
    if (write(link, &heard, sizeof heard) < 0) return;
  }
}

static void serve(long port) {
  signal(SIGPIPE, SIG_IGN);
  int door = socket(AF_INET6, SOCK_STREAM, 0), yes = 1, six = door >= 0;
  struct sockaddr_in6 both = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
  if (!six && (door = socket(AF_INET, SOCK_STREAM, 0)) < 0) fail("socket");
  setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (six ? bind(door, (struct sockaddr *)&both, sizeof both) : bind(door, (struct sockaddr *)&four, sizeof four)) fail("bind");
  if (listen(door, 512)) fail("listen");
  for (int other = 1; other < SERVERS; other++) if (!fork()) break;
  for (;;) {
    int link = accept(door, NULL, NULL);
    if (link < 0) continue;
    serve_one(link);
    close(link);
  }
}

static void find(const char *host, const char *port) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
  number(port, 65535);
  if (getaddrinfo(host, port, &hints, &peer)) { fprintf(stderr, "gauge: %s is no address\n", host); exit(2); }
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  if (!strcmp(what, "file") && count == 8) {
    path = words[2], random_places = !strcmp(words[3], "random"), writes = !strcmp(words[4], "write");
    length = number(words[5], 1 << 24), jobs = number(words[6], MAX_JOBS);
    together(jobs, file_job, number(words[7], 3600));
  } else if (!strcmp(what, "serve") && count == 3) serve(number(words[2], 65535));
  else if (!strcmp(what, "send") && count == 5) find(words[2], words[3]), send_for(number(words[4], 3600));
  else if (!strcmp(what, "receive") && count == 5) find(words[2], words[3]), receive_for(number(words[4], 3600));
  else if (!strcmp(what, "connect") && count == 6) {
    find(words[2], words[3]), jobs = number(words[4], MAX_JOBS);
    together(jobs, connect_job, number(words[5], 3600));
  } else { fputs("gauge: file, serve, send, receive or connect; see gauge.c\n", stderr); return 2; }
  return 0;
}
