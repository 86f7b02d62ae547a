/* c_reader: reads event streams where nothing else has to look at them, without the interpreter.
 *
 * Optional: client/http/poller.py does the same for each socket by itself where this could not be built. Of one socket it
 * keeps reads as long as each is one whole HTTP chunk that holds one whole JSON event and was stamped by the kernel
 * (nearly all of a running stream are), and gives back a lot of them at once; at anything else it gives back what it
 * has, that last. Nothing here parses JSON or judges: client/stream/event_batch.py does, of a lot.
 *
 * c_reader.py mirrors the two structs: a change of either is a new GATHER_LAYOUT in both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define GATHER_LAYOUT 1
#define LOT_READS 32
#define LOT_BYTES 16384   /* from here on a lot is due, however few its reads are */
#define PLAIN_BYTES 8192  /* a longer read is not kept */
#define READ_BYTES 65536
#define MOST_READS 64     /* in one call: what else is due must not wait for a whole engine step */
#define FORESIGHT_S 5e-5  /* a stamp may be so much ahead of the clock that was read after it */

struct kept {
    int32_t reads, plain;           /* plain: all of them, or all but the last */
    int32_t kernel, late;           /* some read was stamped by the kernel; so many were read late */
    int32_t over, error;            /* the other end has closed; with an error, its errno */
    int32_t used;
    int32_t full;                   /* so many reads are a lot; the first lot is shorter, another for each socket:
                                       streams of one step must not all be due in the same one */
    double stamps_s[LOT_READS];     /* CLOCK_MONOTONIC */
    int32_t starts[LOT_READS], ends[LOT_READS]; /* of a plain read's JSON, and of a read, in data */
    char data[LOT_BYTES + READ_BYTES];
};

struct gather {
    int32_t due[MOST_READS];        /* sockets with something to give back, or that are not kept here */
    int32_t due_count, capacity;
    struct kept **kept;             /* by file descriptor */
};

int gather_layout(void) { return GATHER_LAYOUT; }

struct gather *gather_new(void) { return calloc(1, sizeof(struct gather)); }

struct kept *gather_keep(struct gather *gather, int fd) {
    if (fd < gather->capacity && gather->kept[fd]) return gather->kept[fd];
    if (fd >= gather->capacity) {
        int capacity = 2 * fd + MOST_READS;
        struct kept **kept = realloc(gather->kept, capacity * sizeof *kept);
        if (!kept) return NULL;
        memset(kept + gather->capacity, 0, (capacity - gather->capacity) * sizeof *kept);
        gather->kept = kept, gather->capacity = capacity;
    }
    struct kept *kept = malloc(sizeof *kept);
    if (kept) memset(kept, 0, offsetof(struct kept, data)), kept->full = 1 + fd % LOT_READS;
    return gather->kept[fd] = kept;
}

void gather_drop(struct gather *gather, int fd) {
    if (fd >= gather->capacity) return;
    free(gather->kept[fd]);
    gather->kept[fd] = NULL;
}

void gather_free(struct gather *gather) {
    for (int fd = 0; fd < gather->capacity; fd++) free(gather->kept[fd]);
    free(gather->kept);
    free(gather);
}

static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 0x20;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Where the JSON of a plain read begins: SIZE CR LF "data: {" ... "}" LF LF CR LF, the size right, no other line end.
 * 0: it is something else. */
static int plain_start(const char *data, int length) {
    int at = 0, size = 0;
    for (int digit; at < 6 && at < length && (digit = hex(data[at])) >= 0; at++) size = 16 * size + digit;
    int start = at + 2 + 6, end = length - 4;
    if (!at || length > PLAIN_BYTES || start + 2 > end || size != length - at - 4) return 0;
    if (memcmp(data + at, "\r\ndata: {", 9) || memcmp(data + end - 1, "}\n\n\r\n", 5)) return 0;
    if (memchr(data + start, '\r', end - start) || memchr(data + start, '\n', end - start)) return 0;
    return start;
}

/* Reads the socket once. Whether there is something to give back. */
static int read_once(struct kept *kept, int fd, double offset_s, double late_s) {
    if (kept->over || kept->plain < kept->reads || kept->reads >= kept->full || kept->used > LOT_BYTES) return 1;
    char *data = kept->data + kept->used;
    union { char bytes[64]; struct cmsghdr aligned; } control;
    struct iovec into = {data, READ_BYTES};
    struct msghdr message = {
        .msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int length = recvmsg(fd, &message, 0);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (length <= 0) {
        kept->over = 1, kept->error = length ? errno : 0;
        return 1;
    }
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double now_s = time.tv_sec + 1e-9 * time.tv_nsec, stamp_s = now_s;
    int start = 0;
    struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
    if (stamp && !isnan(offset_s)) { /* as SocketPipe does it in pipes.py */
        memcpy(&time, CMSG_DATA(stamp), sizeof time);
        stamp_s = time.tv_sec - offset_s + 1e-9 * time.tv_nsec;
        double age_s = now_s - stamp_s;
        if (age_s > -FORESIGHT_S) {
            kept->kernel = 1, kept->late += age_s > late_s;
            start = plain_start(data, length);
        }
        if (age_s < 0) stamp_s = now_s;
    }
    kept->stamps_s[kept->reads] = stamp_s;
    kept->starts[kept->reads] = kept->used + start;
    kept->used += length;
    kept->ends[kept->reads++] = kept->used;
    kept->plain += start > 0;
    return !start || kept->reads >= kept->full || kept->used > LOT_BYTES;
}

/* Reads what is ready of all sockets in epoll_fd, by turns of epoll until nothing is or something is due.
 * offset_s: how far the wall clock is ahead of CLOCK_MONOTONIC, NaN when no stamp is to be believed; late_s: the age
 * of a late read. Returns how many sockets had something; gather->due says which are to be looked at. */
int gather_read(struct gather *gather, int epoll_fd, double offset_s, double late_s) {
    struct epoll_event ready[MOST_READS];
    int all = 0, count;
    gather->due_count = 0;
    do {
        count = epoll_wait(epoll_fd, ready, MOST_READS - all, 0);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            struct kept *kept = fd < gather->capacity ? gather->kept[fd] : NULL;
            if (!kept || read_once(kept, fd, offset_s, late_s)) gather->due[gather->due_count++] = fd;
        }
        if (count > 0) all += count;
    } while (count > 0 && !gather->due_count && all < MOST_READS);
    return all;
}
