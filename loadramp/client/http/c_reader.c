/* c_reader: reads event streams where nothing else has to look at them, without the interpreter.
 *
 * Optional: client/http/poller.py does the same for each socket by itself where this could not be built. What is kept
 * of one socket, to be given back together, is in this order:
 *
 *   noted events  those that equal the socket's shape, an event that Python has parsed: but for the holes of the shape
 *                 (the text, the tokens so far, the time of making) they are that event byte by byte. Of each only the
 *                 instant, the text and the count are kept.
 *   plain reads   each is one whole HTTP chunk that holds one whole JSON event, and the kernel stamped it.
 *   another read  anything else. It is due at once, and no event is noted until Python says so again: only Python knows
 *                 whether the next read begins with a chunk and an event.
 *
 * Nothing here parses JSON or judges. client/stream/event_shape.py makes the shapes and proves by the parser that only
 * the holes matter; client/stream/event_batch.py parses plain reads.
 *
 * c_reader.py mirrors the structs: a change of any is a new GATHER_LAYOUT in both.
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

#define GATHER_LAYOUT 2
#define LOT_EVENTS 256    /* noted events are due when there are so many, */
#define LOT_S 1.0         /* or this long after the first of them: what is seen of a run must not lag behind it */
#define READ_EVENTS 256   /* a read with more events is not noted */
#define LOT_READS 32      /* plain reads are due when there are so many */
#define LOT_BYTES 16384   /* from here on a lot is due, however few its events are */
#define PLAIN_BYTES 8192  /* a longer read is not kept as plain */
#define READ_BYTES 65536
#define MOST_READS 128    /* in one call: what else is due must not wait for a whole engine step */
#define FORESIGHT_S 5e-5  /* a stamp may be so much ahead of the clock that was read after it */
#define MOST_PARTS 16
#define SHAPE_BYTES 4096
#define MOST_TOKENS 10000000 /* as in stream/usage.py */

struct event {
    double stamp_s;                 /* CLOCK_MONOTONIC */
    int32_t tokens, characters;     /* tokens so far, -1 where the event does not say */
};

enum hole { END, TEXT, STRING, NUMBER, COUNT }; /* of the shape: the text and the count matter, the others do not */

struct part { int32_t length, hole; }; /* so many bytes of the shape as they are, and what follows them in an event */

struct kept {
    int32_t noted, reads, plain;    /* plain: all of the reads, or all but the last */
    int32_t kernel, late;           /* some read was stamped by the kernel; so many were read late */
    int32_t over, error;            /* the other end has closed; with an error, its errno */
    int32_t text, used;             /* bytes in data: of the texts (JSON strings, a line each); with the reads behind */
    int32_t full;                   /* so many plain reads are a lot */
    int32_t parts;                  /* of the shape; 0: nothing is noted now */
    double due_s;                   /* when the noted events are due */
    struct part part[MOST_PARTS];
    char shape[SHAPE_BYTES];
    double stamps_s[LOT_READS];
    int32_t starts[LOT_READS], ends[LOT_READS]; /* of a plain read's JSON, and of a read, in data behind the texts */
    struct event events[LOT_EVENTS + READ_EVENTS];
    char data[LOT_BYTES + READ_BYTES];
};

struct gather {
    int32_t due[MOST_READS];        /* sockets with something to give back, or that are not kept here */
    int32_t due_count, several;     /* several: reads of the latest call that held more than one noted event */
    int32_t capacity;
    struct kept **kept;             /* by file descriptor */
    char data[READ_BYTES];
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
    if (kept) memset(kept, 0, offsetof(struct kept, part)), kept->full = 1;
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

/* The size of the chunk that begins at *at, which moves behind its digits; 0: none begins there. */
static int chunk_size(const char **at, const char *end) {
    int size = 0;
    const char *from = *at;
    for (int digit; *at < end && *at - from < 6 && (digit = hex(**at)) >= 0; ++*at) size = 16 * size + digit;
    return size;
}

/* Where the JSON of a plain read begins: SIZE CR LF "data: {" ... "}" LF LF CR LF, the size right, no other line end.
 * 0: it is something else. */
static int plain_start(const char *data, int length) {
    const char *after = data;
    int size = chunk_size(&after, data + length), at = after - data, start = at + 2 + 6, end = length - 4;
    if (!at || length > PLAIN_BYTES || start + 2 > end || size != length - at - 4) return 0;
    if (memcmp(data + at, "\r\ndata: {", 9) || memcmp(data + end - 1, "}\n\n\r\n", 5)) return 0;
    if (memchr(data + start, '\r', end - start) || memchr(data + start, '\n', end - start)) return 0;
    return start;
}

/* The value of \uXXXX at `at`; -1: it is none. */
static int escaped(const char *at, const char *end) {
    int value = 0;
    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
    for (int i = 2, digit; i < 6; i++) {
        if ((digit = hex(at[i])) < 0) return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* Bytes of the character of UTF-8 at `at` that is not ASCII; 0: it is none (Unicode, table 3-7). */
static int utf8(const unsigned char *at, const char *end) {
    int bytes = at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : at[0] < 0xF5 ? 4 : 0;
    if (!bytes || end - (const char *)at < bytes) return 0;
    int least = at[0] == 0xE0 ? 0xA0 : at[0] == 0xF0 ? 0x90 : 0x80;
    int most = at[0] == 0xED ? 0x9F : at[0] == 0xF4 ? 0x8F : 0xBF;
    if (at[1] < least || at[1] > most) return 0;
    for (int i = 2; i < bytes; i++)
        if ((at[i] & 0xC0) != 0x80) return 0;
    return bytes;
}

/* Behind the JSON string that begins at `at`; NULL: none does, or one that not every parser takes. */
static const char *string_end(const char *at, const char *end, int *characters) {
    *characters = 0;
    if (at == end || *at++ != '"') return NULL;
    for (; at < end && *at != '"'; ++*characters) {
        unsigned char byte = *at;
        if (byte < 0x20) return NULL;
        if (byte >= 0x80) {
            int bytes = utf8((const unsigned char *)at, end);
            if (!bytes) return NULL;
            at += bytes;
        } else if (byte != '\\') {
            at++;
        } else if (end - at > 1 && at[1] != 'u') {
            if (!at[1] || !strchr("\"\\/bfnrt", at[1])) return NULL;
            at += 2;
        } else {
            int value = escaped(at, end);
            if (value < 0 || (value >= 0xDC00 && value < 0xE000)) return NULL;
            at += 6;
            if (value >= 0xD800 && value < 0xE000) { /* half a character: the other half must follow */
                value = escaped(at, end);
                if (value < 0xDC00 || value >= 0xE000) return NULL;
                at += 6;
            }
        }
    }
    return at < end ? at + 1 : NULL;
}

/* Behind the number that begins at `at`, a whole one without sign or needless zero; NULL: none does. */
static const char *number_end(const char *at, const char *end, int64_t *value) {
    const char *from = at;
    for (*value = 0; at < end && at - from < 18 && *at >= '0' && *at <= '9'; at++) *value = 10 * *value + *at - '0';
    return at == from || (*from == '0' && at - from > 1) ? NULL : at;
}

/* Notes the events of a read that holds nothing else, all or none. Returns how many. */
static int note(struct kept *kept, const char *data, int length, double stamp_s) {
    const char *at = data, *end = data + length;
    int noted = kept->noted, text = kept->text;
    for (; at < end; noted++) {
        if (noted == LOT_EVENTS + READ_EVENTS) return 0;
        struct event *event = kept->events + noted;
        *event = (struct event){stamp_s, -1, 0};
        int size = chunk_size(&at, end), characters = 0;
        const char *begin = at, *as_it_is = kept->shape;
        for (struct part *part = kept->part; part < kept->part + kept->parts; part++) {
            if (end - at < part->length || memcmp(at, as_it_is, part->length)) return 0;
            as_it_is += part->length, at += part->length;
            const char *from = at;
            int64_t number = 1;
            if (part->hole == TEXT || part->hole == STRING) at = string_end(at, end, &characters);
            if (part->hole == NUMBER || part->hole == COUNT) at = number_end(at, end, &number);
            if (!at) return 0;
            if (part->hole == COUNT) {
                if (!number || number > MOST_TOKENS) return 0;
                event->tokens = number;
            } else if (part->hole == TEXT) {
                if (!characters) return 0;
                event->characters = characters;
                memcpy(kept->data + text, from, at - from);
                text += at - from;
                kept->data[text++] = '\n';
            }
        }
        if (size != at - begin - 4) return 0;
    }
    int events = noted - kept->noted;
    kept->noted = noted, kept->text = kept->used = text;
    return events;
}

/* Keeps a read with whatever is in it. Whether it is plain. */
static int keep(struct kept *kept, const char *data, int length, double stamp_s, int stamped) {
    int start = stamped ? plain_start(data, length) : 0;
    kept->parts = 0;
    memcpy(kept->data + kept->used, data, length);
    kept->stamps_s[kept->reads] = stamp_s;
    kept->starts[kept->reads] = kept->used - kept->text + start;
    kept->used += length;
    kept->ends[kept->reads++] = kept->used - kept->text;
    kept->plain += start > 0;
    return start > 0;
}

/* There is something to give back. */
static int is_due(const struct kept *kept) {
    return kept->over || kept->plain < kept->reads || kept->reads >= kept->full || kept->noted >= LOT_EVENTS
        || kept->used > LOT_BYTES || (kept->noted && kept->reads);
}

/* Reads the socket once. Whether there is something to give back. */
static int read_once(struct gather *gather, struct kept *kept, int fd, double offset_s, double late_s) {
    if (is_due(kept)) return 1;
    union { char bytes[64]; struct cmsghdr aligned; } control;
    struct iovec into = {gather->data, READ_BYTES};
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
    int stamped = 0;
    struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
    if (stamp && !isnan(offset_s)) { /* as SocketPipe does it in sockets.py */
        memcpy(&time, CMSG_DATA(stamp), sizeof time);
        stamp_s = time.tv_sec - offset_s + 1e-9 * time.tv_nsec;
        double age_s = now_s - stamp_s;
        if (age_s > -FORESIGHT_S) stamped = kept->kernel = 1, kept->late += age_s > late_s;
        if (age_s < 0) stamp_s = now_s;
    }
    int events = stamped && kept->parts && !kept->reads ? note(kept, gather->data, length, stamp_s) : 0;
    if (!events) return !keep(kept, gather->data, length, stamp_s, stamped) || is_due(kept);
    gather->several += events > 1;
    if (kept->noted == events) /* the first lot is shorter, another for each: all streams of a step are not due in one */
        kept->due_s = stamp_s + (kept->due_s ? LOT_S : LOT_S * (1 + fd % LOT_READS) / LOT_READS);
    return is_due(kept) || stamp_s >= kept->due_s;
}

/* Reads what is ready of all sockets in epoll_fd, by turns of epoll until nothing is or something is due.
 * offset_s: how far the wall clock is ahead of CLOCK_MONOTONIC, NaN when no stamp is to be believed; late_s: the age
 * of a late read. Returns how many sockets had something; gather->due says which are to be looked at. */
int gather_read(struct gather *gather, int epoll_fd, double offset_s, double late_s) {
    struct epoll_event ready[MOST_READS];
    int all = 0, count;
    gather->due_count = gather->several = 0;
    do {
        count = epoll_wait(epoll_fd, ready, MOST_READS - all, 0);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            struct kept *kept = fd < gather->capacity ? gather->kept[fd] : NULL;
            if (!kept || read_once(gather, kept, fd, offset_s, late_s)) gather->due[gather->due_count++] = fd;
        }
        if (count > 0) all += count;
    } while (count > 0 && !gather->due_count && all < MOST_READS);
    return all;
}
