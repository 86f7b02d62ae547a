/* c_reader.c with sockets made of memory, for the fuzz tests: what is read is what was fed, stamped as it was told.
 *
 * As a library (gather_feed before each gather_read) it is driven from Python; as a program (-DPROGRAM, built with the
 * sanitizers) it takes reads from its input, each as its length in four bytes and its bytes, a length of zero between
 * two connections, and says when what it gives back is not what it was fed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

static const char *fed;
static int fed_length = -1, fed_fd;
static double fed_s, fed_ahead_s; /* the wall clock is ahead */

static ssize_t fed_recvmsg(int fd, struct msghdr *message, int flags) {
    (void)fd, (void)flags;
    if (fed_length < 0) return errno = EAGAIN, -1;
    int length = fed_length < (int)message->msg_iov->iov_len ? fed_length : (int)message->msg_iov->iov_len;
    memcpy(message->msg_iov->iov_base, fed, length);
    struct cmsghdr *stamp = message->msg_control;
    struct timespec time = {(time_t)fed_s, (long)((fed_s - (time_t)fed_s) * 1e9 + 0.5)};
    stamp->cmsg_level = SOL_SOCKET, stamp->cmsg_type = SCM_TIMESTAMPNS, stamp->cmsg_len = CMSG_LEN(sizeof time);
    memcpy(CMSG_DATA(stamp), &time, sizeof time);
    message->msg_controllen = CMSG_SPACE(sizeof time);
    fed_length = -1;
    return length;
}

static int fed_wait(int epoll_fd, struct epoll_event *ready, int most, int timeout) {
    (void)epoll_fd, (void)most, (void)timeout;
    if (fed_length < 0) return 0;
    ready[0].data.fd = fed_fd;
    return 1;
}

static int fed_clock(clockid_t clock, struct timespec *time) {
    double now_s = clock == CLOCK_REALTIME ? fed_s + fed_ahead_s : fed_s;
    time->tv_sec = (time_t)now_s, time->tv_nsec = (long)((now_s - (time_t)now_s) * 1e9 + 0.5);
    return 0;
}

#define recvmsg fed_recvmsg
#define epoll_wait fed_wait
#define clock_gettime fed_clock
#include "../loadramp/client/http/c_reader.c"

void gather_feed(int fd, const char *data, int length, double now_s) {
    fed = data, fed_length = length, fed_fd = fd, fed_s = now_s;
}

/* It reads as the thread does on the beat. */
void gather_fed_beat(struct gather *gather, int beats) { gather->beating = beats; }

/* What a beat at now_s takes for the offset of the wall clock that is ahead_s ahead. */
double gather_fed_offset(struct gather *gather, double now_s, double ahead_s) {
    fed_s = now_s, fed_ahead_s = ahead_s;
    double told_s, offset_s = offset_now(gather, &told_s);
    fed_ahead_s = 0;
    return offset_s;
}

#ifdef PROGRAM
static char given[MOST_READS][LOT_BYTES + READ_BYTES];
static int given_length[MOST_READS], givens;
static long noted, opened;

/* The shape of a plain event as Python finds it, but without its proof: more is noted. */
static void learn(struct gather *gather, int fd, const char *json, const char *end) {
    static const struct { const char *key; int hole; } keys[] = {
        {"\"content\":", TEXT}, {"\"id\":", STRING}, {"\"created\":", NUMBER}, {"\"completion_tokens\":", COUNT},
        {"\"prompt_tokens\":", SAME}};
    struct part parts[MOST_PARTS];
    char shape[2 * SHAPE_BYTES] = "\r\ndata: ";
    int used = 8, texts = 0, part = 0, ignored;
    if (end - json + 12 > SHAPE_BYTES) return;
    for (int begin = 0; part < MOST_PARTS; part++) {
        const char *from = end, *to = end;
        int hole = END;
        for (int i = 0; i < 5; i++) {
            const char *at = memmem(json, from - json, keys[i].key, strlen(keys[i].key)), *behind;
            if (!at) continue;
            for (at += strlen(keys[i].key); at < end && *at == ' ';) at++;
            int64_t value;
            behind = keys[i].hole > STRING ? number_end(at, end, &value) : string_end(at, end, &ignored);
            if (behind) from = at, to = behind, hole = keys[i].hole;
        }
        memcpy(shape + used, json, from - json);
        used += from - json, texts += hole == TEXT;
        if (hole == END) memcpy(shape + used, "\n\n\r\n", 4), used += 4;
        parts[part] = (struct part){used - begin, hole}, begin = used, json = to;
        if (hole == END) break;
    }
    int most_reads = kept_of(gather, fd)->most_reads;
    gather_learn(gather, fd, EVENT, most_reads, texts == 1 && part < MOST_PARTS ? part + 1 : 0, parts, used, shape);
    if (kept_of(gather, fd)->shapes[EVENT]) kept_of(gather, fd)->stage = RUNNING;
}

/* The head of a reply as other replies have it, the value of its last header but one left open. */
static void learn_head(struct gather *gather, int fd, const char *data, int length) {
    const char *end = memmem(data, length, "\r\n\r\n", 4), *hole = end;
    if (!end || end + 4 - data > SHAPE_BYTES) return;
    while (hole > data && *hole != ':') hole--;
    const char *rest = hole > data ? line_end(hole, end + 1) : NULL;
    struct part parts[2] = {{rest ? hole - data : end + 4 - data, rest ? LINE : END}, {rest ? end + 4 - rest : 0, END}};
    char bytes[SHAPE_BYTES];
    memcpy(bytes, data, parts[0].length);
    if (rest) memcpy(bytes + parts[0].length, rest, parts[1].length);
    gather_learn(gather, fd, REPLY_HEAD, 1, rest ? 2 : 1, parts, parts[0].length + parts[1].length, bytes);
}

/* What is taken must be the reads since it was taken last, in order; where nobody is patient, only the last of them may be
 * other than plain. */
static void take(struct gather *gather, int fd, long connection) {
    gather_take(gather, fd);
    struct kept *kept = kept_of(gather, fd);
    kept->most_reads = connection % 4 ? 1 : LOT_READS;
    const struct lot *lot = &gather->taken;
    int at = 0, lines = 0, plain = 0, last = -1;
    for (int i = lot->text; i < lot->text_end; i++) lines += lot->data[i] == '\n';
    if (lines != lot->noted || lot->text > lot->text_end || lot->text_end > lot->used) abort();
    if (lot->reads != givens || lot->opening > lot->reads || (!kept->patient && lot->opening)) abort();
    for (int i = 0; i < lot->reads; i++) {
        if (i == lot->opening && lot->noted) {
            if (lot->text != at) abort();
            at = lot->text_end;
        }
        if (lot->ends[i] - at != given_length[i] || memcmp(lot->data + at, given[i], given_length[i])) {
            fprintf(stderr, "connection %ld: read %d is not what was fed\n", connection, i);
            abort();
        }
        if (lot->starts[i] && (lot->starts[i] < at || lot->data[lot->starts[i]] != '{')) abort();
        if (lot->starts[i] && lot->data[lot->ends[i] - 5] != '}') abort();
        at = lot->ends[i], plain += lot->starts[i] && i >= lot->opening;
        if (lot->starts[i]) last = i;
    }
    if (plain != lot->plain || (!kept->patient && plain < lot->reads - 1)) abort();
    noted += lot->noted, opened += lot->opening;
    if (last >= 0) learn(gather, fd, lot->data + lot->starts[last], lot->data + lot->ends[last] - 4);
    givens = 0;
}

int main(void) {
    static char data[1 << 24];
    struct gather *gather = gather_new();
    long reads = 0, lots = 0, connection = 0;
    static char head[SHAPE_BYTES];
    struct shape *running = NULL; /* of the connection before */
    int fd = 3, length, first = 1, head_length = 0;
    gather_keep(gather, fd);
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        if (length == 0) { /* this connection is closed, and another begins */
            gather_feed(fd, data, 0, 1.0 + reads++ * 0.001);
            gather_read(gather, 0, 0.0, 0.005);
            if (gather->due_count != 1) abort();
            take(gather, fd, connection);
            if (kept_of(gather, fd)->shapes[EVENT]) {
                leave_shape(gather, running);
                running = kept_of(gather, fd)->shapes[EVENT], running->users++;
            }
            if (!gather->taken.over || gather->taken.error) abort();
            const struct lot *rest = &kept_of(gather, fd)->lot;
            if (rest->noted || rest->reads || rest->over) abort();
            gather_drop(gather, fd);
            connection++, fd = 3 + (connection * 7) % 500;
            gather_keep(gather, fd);
            learn_head(gather, fd, head, head_length);
            if (running) kept_of(gather, fd)->shapes[EVENT] = running, running->users++;
            gather->beating = connection % 2;
            gather_expect(gather, fd, gather->beating);
            first = 1;
            continue;
        }
        if (length < 0 || length > (int)sizeof data || fread(data, 1, length, stdin) != (size_t)length) return 2;
        for (int at = 0; at < length;) {
            int part = length - at < READ_BYTES ? length - at : READ_BYTES;
            char *exact = malloc(part); /* nothing behind it that could be read */
            memcpy(exact, data + at, part);
            memcpy(given[givens], exact, part), given_length[givens++] = part;
            const char *blank = first ? memmem(data, length, "\r\n\r\n", 4) : NULL;
            if (blank && blank + 4 - data <= SHAPE_BYTES) memcpy(head, data, head_length = blank + 4 - data);
            first = 0;
            gather_feed(fd, exact, part, 1.0 + reads++ * 0.001);
            const struct lot *lot = &kept_of(gather, fd)->lot;
            int before = lot->reads;
            gather_read(gather, 0, 0.0, 0.005);
            free(exact);
            at += part;
            givens -= lot->reads == before; /* its events were noted */
            if (gather->due_count) lots++, take(gather, fd, connection);
        }
    }
    leave_shape(gather, running);
    gather_free(gather);
    printf("%ld connections, %ld reads, %ld lots, %ld opening reads, %ld events noted\n", connection, reads, lots, opened,
           noted);
    return 0;
}
#endif
