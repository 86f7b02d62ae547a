/* c_reader: reads event streams where nothing else has to look at them, without the interpreter.
 *
 * Optional: client/http/poller.py does the same for each socket by itself where this could not be built. What is kept
 * of one socket, to be given back together, is in this order:
 *
 *   the opening   reads of a reply that begins as an earlier one did, up to the first event of the answer
 *   noted events  those that equal the socket's shape, an event that Python has parsed: but for the holes of the shape
 *                 (the text, the tokens so far, the time of making) they are that event byte by byte. Of each only the
 *                 instant, the text and the count are kept.
 *   other reads   plain ones, of which each is one whole HTTP chunk that holds one whole JSON event and that the kernel
 *                 stamped, and anything else. No event is noted until Python says so again: only Python knows whether
 *                 the next read begins with a chunk and an event.
 *
 * Where a request is in no hurry (patient), Python is told of its reply several at once, and of most replies once, when
 * they are over: a request that is looked at between others costs three times what it costs in a row with its like.
 *
 * Nothing here parses JSON or judges. client/stream/event_shape.py makes the shapes and proves by the parser that only
 * the holes matter; client/stream/event_batch.py parses plain reads. What opens a reply is parsed as any other read is.
 *
 * On the beat a thread reads, and wakes the loop only for what is due (docs/decisions/0004-reading-on-a-beat.md). Each
 * function takes the lock, and what Python takes is moved, so neither sees half of a change.
 *
 * c_reader.py mirrors the structs: a change of any is a new GATHER_LAYOUT in both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "event_bytes.h"

#define GATHER_LAYOUT 7
#define LOT_EVENTS 256    /* noted events are due when there are so many */
#define READ_EVENTS 256   /* a read with more events is not noted */
#define LOT_READS 32      /* plain reads are due when there are so many */
#define LOT_BYTES 16384   /* from here on a lot is due, however few its events are */
#define READ_BYTES 65536
#define MOST_READS 128    /* in one call, */
#define MOST_DUE 12       /* and so many that Python must look at: that takes 2 ms, in which nothing is read */
#define FORESIGHT_S 5e-5  /* a stamp may be so much ahead of the clock that was read after it */
#define STEP_S 1e-3       /* as in poller.py: clocks that move apart so far are not believed for DISTRUST_S */
#define DISTRUST_S 0.1
#define TOGETHER_S 2e-5
#define NAP_S 1e-3        /* on the beat, after the first read; then twice as long, up to the period */
#define IDLE_MS 100       /* the thread looks so often whether it is still wanted */
#define COLLECT_MS 16     /* what is due of patient requests waits so long for more of them */
#define COLLECT_S (1e-3 * COLLECT_MS)
#define MOST_PARTS 16
#define SHAPE_BYTES 4096
#define MOST_LOOKS 16     /* for a shape among those of other sockets */
#define MOST_TOKENS 10000000 /* as in stream/usage.py */

struct event {
    double stamp_s;                 /* CLOCK_MONOTONIC */
    int32_t tokens, characters;     /* tokens so far, -1 where the event does not say */
};

/* Of a shape: the text (ANY_TEXT may be empty) and the count matter. SAME is a number that all events of a reply have in
 * common, LINE the rest of a line; the others may be anything. */
enum hole { END, TEXT, STRING, NUMBER, COUNT, SAME, LINE, ANY_TEXT };

struct part { int32_t length, hole; }; /* so many bytes of the shape as they are, and what follows them */

struct shape { /* one for all sockets that have it: it stays in the processor's cache */
    int32_t users, parts, length;
    struct part part[MOST_PARTS];
    char bytes[SHAPE_BYTES];
    struct shape *next;
};

enum which { EVENT, REPLY_HEAD, BEFORE }; /* a shape of an event of the answer; of a head; of a chunk before the answer */

enum stage { ANY, HEAD, PRELUDE, RUNNING }; /* what the next read is expected to be; ANY: only Python can tell */

struct lot {
    int32_t noted, reads, opening;  /* opening: so many of the reads are before the noted events */
    int32_t kernel, late;           /* some read was stamped by the kernel; so many were read late */
    int32_t over, error;            /* the other end has closed; with an error, its errno */
    int32_t text, text_end, used;   /* in data, of the texts (JSON strings, a line each): begin, end; of everything */
    int32_t same, begun, plain;     /* SAME of the events, -1: none; events in the opening; plain reads behind it */
    int32_t starts[LOT_READS], ends[LOT_READS]; /* in data: of a plain read's JSON (else 0), and of a read */
    double stamps_s[LOT_READS];
    struct event events[LOT_EVENTS + READ_EVENTS];
    char data[LOT_BYTES + READ_BYTES];
};

struct kept {
    int32_t expected;               /* 1: a reply that somebody waits for is to come, 2: a patient one; set without the lock */
    int32_t stage, patient, queued; /* queued: it is in gather->due */
    int32_t most_events, most_reads; /* so many are a lot */
    struct shape *shapes[3];        /* NULL: none is known */
    struct lot lot;
};

struct gather {
    int32_t due[MOST_READS];        /* sockets with something to give back, or that are not kept here */
    int32_t due_count, several;     /* several: reads of the latest call that held more than one noted event */
    int32_t beats, reads, blurred, all; /* reads on punctual beats, those of them with several events, on any beat */
    int32_t noted, late, begun;     /* events, late reads and begun answers that wait in all lots, after gather_count */
    struct lot taken;
    int32_t capacity;
    struct kept **kept;             /* by file descriptor */
    struct shape *shapes;
    pthread_mutex_t lock;
    pthread_cond_t handled;
    int beating, running, closed, more, epoll_fd, told_fd, look_beats;
    int urgent, handing;            /* something due cannot wait; Python handles what it has collected */
    double nap_s, period_s, late_s, late_beats, offset_s, distrust_until_s, due_since_s;
    char data[READ_BYTES];
};

int gather_layout(void) { return GATHER_LAYOUT; }

static double clock_s(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

struct gather *gather_new(void) {
    struct gather *gather = calloc(1, sizeof *gather);
    if (gather) pthread_mutex_init(&gather->lock, NULL), pthread_cond_init(&gather->handled, NULL);
    return gather;
}

/* The shape that equals this one, made if need be; NULL: there is no memory for it. */
static struct shape *use_shape(struct gather *gather, int parts, const struct part *part, int length, const char *bytes) {
    struct shape *shape = gather->shapes;
    int looks = MOST_LOOKS; /* of streams that have nothing in common, each has its own */
    while (shape && (shape->parts != parts || shape->length != length || memcmp(shape->bytes, bytes, length)
                     || memcmp(shape->part, part, parts * sizeof *part))) shape = looks-- ? shape->next : NULL;
    if (!shape && (shape = malloc(sizeof *shape))) {
        shape->users = 0, shape->parts = parts, shape->length = length;
        memcpy(shape->part, part, parts * sizeof *part), memcpy(shape->bytes, bytes, length);
        shape->next = gather->shapes, gather->shapes = shape;
    }
    if (shape) shape->users++;
    return shape;
}

static void leave_shape(struct gather *gather, struct shape *shape) {
    if (!shape || --shape->users) return;
    struct shape **at = &gather->shapes;
    while (*at != shape) at = &(*at)->next;
    *at = shape->next;
    free(shape);
}

static void forget(struct gather *gather, struct kept *kept) {
    for (int which = EVENT; kept && which <= BEFORE; which++) leave_shape(gather, kept->shapes[which]);
    free(kept);
}

static struct kept *kept_of(struct gather *gather, int fd) { return fd < gather->capacity ? gather->kept[fd] : NULL; }

static void empty(struct lot *lot) { memset(lot, 0, offsetof(struct lot, starts)), lot->same = -1; }

/* From now on what comes on fd is kept. 0: there is no memory for it. */
int gather_keep(struct gather *gather, int fd) {
    pthread_mutex_lock(&gather->lock);
    if (fd >= gather->capacity) {
        int capacity = 2 * fd + MOST_READS;
        struct kept **kept = realloc(gather->kept, capacity * sizeof *kept);
        if (kept) {
            memset(kept + gather->capacity, 0, (capacity - gather->capacity) * sizeof *kept);
            gather->kept = kept, gather->capacity = capacity;
        }
    }
    struct kept *kept = kept_of(gather, fd);
    if (!kept && fd < gather->capacity && (kept = gather->kept[fd] = malloc(sizeof *kept))) {
        empty(&kept->lot);
        kept->stage = ANY, kept->expected = kept->patient = kept->queued = 0, kept->most_reads = 1;
        memset(kept->shapes, 0, sizeof kept->shapes);
        kept->most_events = 1 + fd * 37 % LOT_EVENTS; /* streams of one step must not all be due in the same one */
    }
    pthread_mutex_unlock(&gather->lock);
    return kept != NULL;
}

/* No longer; what waits is lost. */
void gather_drop(struct gather *gather, int fd) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    if (kept) forget(gather, kept), gather->kept[fd] = NULL;
    pthread_mutex_unlock(&gather->lock);
}

/* Begins with a reply if one is expected. */
static void begin(struct kept *kept) {
    int expected = __atomic_exchange_n(&kept->expected, 0, __ATOMIC_ACQUIRE);
    if (!expected) return;
    kept->patient = expected == 2, kept->most_reads = 1, kept->lot.same = -1;
    int known = kept->patient && kept->shapes[REPLY_HEAD] && kept->shapes[EVENT] && !kept->lot.reads && !kept->lot.noted;
    kept->stage = known ? HEAD : ANY;
}

/* Moves what waits into gather->taken. */
void gather_take(struct gather *gather, int fd) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    struct lot *lot = kept ? &kept->lot : NULL, *taken = &gather->taken;
    empty(taken);
    if (lot) {
        begin(kept);
        memcpy(taken, lot, lot->reads ? offsetof(struct lot, events) : offsetof(struct lot, starts));
        memcpy(taken->events, lot->events, lot->noted * sizeof *lot->events);
        memcpy(taken->data, lot->data, lot->used);
        int same = lot->same;
        empty(lot), lot->same = same;
        if (taken->noted) kept->most_events = LOT_EVENTS;
    }
    pthread_mutex_unlock(&gather->lock);
}

/* Sets a shape (enum which; no parts: none). EVENT: of those that gather_note may turn on; of others, most_reads are a lot
 * from now on. */
void gather_learn(struct gather *gather, int fd, int which, int most_reads, int parts, const struct part *part,
                  int length, const char *bytes) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    if (kept) {
        struct shape *before = kept->shapes[which];
        begin(kept);
        kept->shapes[which] = parts ? use_shape(gather, parts, part, length, bytes) : NULL;
        leave_shape(gather, before);
        if (which == EVENT) kept->most_reads = most_reads, kept->stage = ANY;
    }
    pthread_mutex_unlock(&gather->lock);
}

/* Events of the shape may be noted from now on, as every read that was taken is parsed and the next is sure to begin
 * with a chunk and an event: so not if another read has come since. */
void gather_note(struct gather *gather, int fd, int sure) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    if (kept) begin(kept);
    if (kept && sure && !kept->lot.reads && kept->shapes[EVENT]) kept->stage = RUNNING;
    else if (kept && (sure || kept->stage == RUNNING)) kept->stage = ANY;
    pthread_mutex_unlock(&gather->lock);
}

/* The next read is the beginning of a reply. patient: nobody waits for it. Without the lock, for a request that is due must
 * not wait until the thread has read what there is: only Python adds and removes what is kept. */
void gather_expect(struct gather *gather, int fd, int patient) {
    struct kept *kept = kept_of(gather, fd);
    if (kept) __atomic_store_n(&kept->expected, 1 + patient, __ATOMIC_RELEASE);
}

/* Counts what waits in all lots. */
void gather_count(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    gather->noted = gather->late = gather->begun = 0;
    for (int fd = 0; fd < gather->capacity; fd++) {
        struct lot *lot = gather->kept[fd] ? &gather->kept[fd]->lot : NULL;
        if (lot) gather->noted += lot->noted + lot->begun, gather->late += lot->late, gather->begun += lot->begun > 0;
    }
    pthread_mutex_unlock(&gather->lock);
}

static void free_all(struct gather *gather) {
    for (int fd = 0; fd < gather->capacity; fd++) forget(gather, gather->kept[fd]);
    free(gather->kept);
    pthread_mutex_destroy(&gather->lock), pthread_cond_destroy(&gather->handled);
    free(gather);
}

/* Whether what begins at *at, which moves behind it, equals the shape but for its holes. What matters of those is in
 * event and *same; the text in *text (to its length in bytes, the quotes included). */
static int equals(const struct shape *shape, const char **from, const char *end, struct event *event, int32_t *same,
                  const char **text, int *text_bytes) {
    const char *at = *from, *as_it_is = shape->bytes;
    for (const struct part *part = shape->part; part < shape->part + shape->parts; part++) {
        if (end - at < part->length || memcmp(at, as_it_is, part->length)) return 0;
        as_it_is += part->length, at += part->length;
        const char *hole = at;
        int64_t number = 1;
        int characters = 0;
        if (part->hole == TEXT || part->hole == ANY_TEXT || part->hole == STRING) at = string_end(at, end, &characters);
        if (part->hole == NUMBER || part->hole == COUNT || part->hole == SAME) at = number_end(at, end, &number);
        if (part->hole == LINE) at = line_end(at, end);
        if (!at) return 0;
        if (part->hole == COUNT) {
            if (!number || number > MOST_TOKENS) return 0;
            event->tokens = number;
        } else if (part->hole == SAME) {
            if (number > MOST_TOKENS || (*same >= 0 && *same != number)) return 0;
            *same = number;
        } else if (part->hole == TEXT || part->hole == ANY_TEXT) {
            if (!characters && part->hole == TEXT) return 0;
            event->characters = characters, *text = hole, *text_bytes = at - hole;
        }
    }
    *from = at;
    return 1;
}

/* Whether a chunk of one event of the shape begins at *at, which moves behind it. */
static int equal_event(const struct shape *shape, const char **at, const char *end, struct event *event, int32_t *same,
                       const char **text, int *text_bytes) {
    int size = chunk_size(at, end);
    const char *begin = *at;
    return equals(shape, at, end, event, same, text, text_bytes) && size == *at - begin - 4;
}

/* Notes the events of a read that holds nothing else, all or none. Returns how many. */
static int note(struct kept *kept, const char *data, int length, double stamp_s) {
    const char *at = data, *end = data + length, *text;
    struct lot *lot = &kept->lot;
    int noted = lot->noted, used = lot->used, bytes;
    int32_t same = lot->same;
    for (; at < end; noted++) {
        if (noted == LOT_EVENTS + READ_EVENTS) return 0;
        struct event *event = lot->events + noted;
        *event = (struct event){stamp_s, -1, 0};
        if (!equal_event(kept->shapes[EVENT], &at, end, event, &same, &text, &bytes)) return 0;
        memcpy(lot->data + used, text, bytes);
        used += bytes;
        lot->data[used++] = '\n';
    }
    int events = noted - lot->noted;
    if (!lot->noted) lot->text = lot->used;
    lot->noted = noted, lot->text_end = lot->used = used, lot->same = same;
    return events;
}

/* Whether a read belongs to the opening of a reply as earlier ones were: the head, an event before the answer, and the
 * answer's first events, behind which events are noted. */
static int opens(struct kept *kept, const char *data, int length) {
    const char *at = data, *end = data + length, *text;
    struct event event;
    int32_t same = kept->lot.same;
    int bytes, begun = 0;
    if (kept->stage == HEAD && !equals(kept->shapes[REPLY_HEAD], &at, end, &event, &same, &text, &bytes)) return 0;
    while (at < end) {
        const char *from = at;
        if (equal_event(kept->shapes[EVENT], &at, end, &event, &same, &text, &bytes)) {
            begun += event.characters > 0;
        } else {
            at = from;
            const struct shape *before = begun ? NULL : kept->shapes[BEFORE];
            event.characters = 0;
            if (!before || !equal_event(before, &at, end, &event, &same, &text, &bytes)) return 0;
            begun += event.characters > 0;
        }
    }
    kept->stage = begun ? RUNNING : PRELUDE, kept->lot.begun += begun, kept->lot.same = same;
    return 1;
}

/* Keeps a read with whatever is in it. */
static void keep(struct kept *kept, const char *data, int length, double stamp_s, int stamped) {
    struct lot *lot = &kept->lot;
    int start = stamped ? plain_start(data, length) : 0;
    int opening = stamped && (kept->stage == HEAD || kept->stage == PRELUDE) && opens(kept, data, length);
    if (!opening) kept->stage = ANY;
    memcpy(lot->data + lot->used, data, length);
    lot->stamps_s[lot->reads] = stamp_s;
    lot->starts[lot->reads] = start ? lot->used + start : 0;
    lot->used += length;
    lot->ends[lot->reads++] = lot->used;
    lot->opening += opening, lot->plain += start && !opening;
}

/* Nothing more can be kept, or the other end has closed. */
static int is_full(const struct kept *kept) {
    const struct lot *lot = &kept->lot;
    return lot->over || lot->reads == LOT_READS || lot->noted >= kept->most_events || lot->used > LOT_BYTES;
}

/* There is something to give back. */
static int is_due(const struct kept *kept) {
    const struct lot *lot = &kept->lot;
    int others = lot->reads - lot->opening;
    return is_full(kept) || lot->plain < others || others >= kept->most_reads || (lot->noted && others);
}

/* Reads the socket once, if there is room. */
static void read_once(struct gather *gather, struct kept *kept, int fd, double offset_s, double late_s) {
    begin(kept);
    if (is_full(kept) || (is_due(kept) && !(gather->beating && kept->patient))) return;
    union { char bytes[64]; struct cmsghdr aligned; } control;
    struct iovec into = {gather->data, READ_BYTES};
    struct msghdr message = {
        .msg_iov = &into, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    int length = recvmsg(fd, &message, 0);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (length <= 0) {
        kept->lot.over = 1, kept->lot.error = length ? errno : 0;
        return;
    }
    double now_s = clock_s(CLOCK_MONOTONIC), stamp_s = now_s;
    int stamped = 0;
    struct cmsghdr *stamp = CMSG_FIRSTHDR(&message);
    if (stamp && !isnan(offset_s)) { /* as SocketPipe does it in sockets.py */
        struct timespec time;
        memcpy(&time, CMSG_DATA(stamp), sizeof time);
        stamp_s = time.tv_sec - offset_s + 1e-9 * time.tv_nsec;
        double age_s = now_s - stamp_s;
        if (age_s > -FORESIGHT_S) stamped = kept->lot.kernel = 1, kept->lot.late += age_s > late_s;
        if (age_s < 0) stamp_s = now_s;
    }
    int events = stamped && kept->stage == RUNNING ? note(kept, gather->data, length, stamp_s) : 0;
    if (!events) keep(kept, gather->data, length, stamp_s, stamped);
    gather->several += events > 1;
}

/* Puts the socket among those that are to be looked at, once. */
static void queue(struct gather *gather, struct kept *kept, int fd) {
    if (!kept || !kept->patient || is_full(kept)) gather->urgent = 1;
    if (kept && kept->queued) return;
    if (kept) kept->queued = 1;
    if (!gather->due_count) gather->due_since_s = clock_s(CLOCK_MONOTONIC);
    gather->due[gather->due_count++] = fd;
}

/* Forgets what is due: somebody looks at it. */
static void unqueue(struct gather *gather) {
    for (int i = 0; i < gather->due_count; i++) {
        struct kept *kept = kept_of(gather, gather->due[i]);
        if (kept) kept->queued = 0;
    }
    gather->due_count = gather->urgent = 0;
}

/* Reads what is ready of some sockets. Returns how many had something; gather->due says which are to be looked at, and
 * gather->more whether others may have something. */
static int read_ready(struct gather *gather, int epoll_fd, double offset_s, double late_s, int most) {
    struct epoll_event ready[MOST_READS];
    int count = epoll_wait(epoll_fd, ready, most, 0);
    int done = 0;
    for (; done < count && gather->due_count < MOST_DUE; done++) {
        int fd = ready[done].data.fd;
        struct kept *kept = kept_of(gather, fd);
        if (kept) read_once(gather, kept, fd, offset_s, late_s);
        if (!kept || is_due(kept) || (kept->patient && !gather->beating && kept->lot.reads)) queue(gather, kept, fd);
    }
    gather->more = done < count || count == most;
    return done;
}

/* Reads by turns of epoll until nothing is there or something is due. offset_s: how far the wall clock is ahead of
 * CLOCK_MONOTONIC, NaN when no stamp is to be believed; late_s: the age of a late read. Returns how many sockets had
 * something. */
int gather_read(struct gather *gather, int epoll_fd, double offset_s, double late_s) {
    pthread_mutex_lock(&gather->lock);
    int all = 0, count;
    unqueue(gather), gather->several = 0;
    do all += count = read_ready(gather, epoll_fd, offset_s, late_s, MOST_READS - all);
    while (count && !gather->due_count && all < MOST_READS);
    pthread_mutex_unlock(&gather->lock);
    return all;
}

/* -- the beat */

/* How far the wall clock is ahead; NaN for a while after one of the clocks was moved. */
static double offset_now(struct gather *gather, double *now_s) {
    double wall_s = 0;
    for (int i = 0; i < 3; i++) { /* again if something else had the core in between */
        double before_s = clock_s(CLOCK_MONOTONIC);
        wall_s = clock_s(CLOCK_REALTIME), *now_s = clock_s(CLOCK_MONOTONIC);
        if (*now_s - before_s < TOGETHER_S) break;
    }
    double moved_s = wall_s - *now_s - gather->offset_s;
    if (moved_s <= -STEP_S || moved_s >= STEP_S) gather->distrust_until_s = *now_s + DISTRUST_S;
    gather->offset_s += moved_s;
    return *now_s < gather->distrust_until_s ? NAN : gather->offset_s;
}

/* Reads what is there after a nap, until something is due. Whether there is more to read. */
static int read_beat(struct gather *gather, double nap_s, int punctual, double offset_s) {
    int all = 0;
    gather->several = 0;
    do all += read_ready(gather, gather->epoll_fd, offset_s, gather->late_s + nap_s, MOST_READS);
    while (gather->more && !gather->urgent && gather->due_count < MOST_DUE);
    gather->beats++, gather->all += all;
    if (punctual) gather->reads += all, gather->blurred += gather->several;
    double next_s = nap_s ? 2 * nap_s : NAP_S;
    gather->nap_s = !all ? 0 : next_s < gather->period_s ? next_s : gather->period_s;
    return gather->more;
}

/* Sleeps for nap_s; where there was nothing to read (0), until there is, or idle_ms have passed. */
static void nap(double nap_s, int idle_ms, int epoll_fd) {
    double due_s = clock_s(CLOCK_MONOTONIC) + nap_s;
    struct timespec time = {(time_t)due_s, (long)((due_s - (time_t)due_s) * 1e9)};
    struct epoll_event first;
    if (nap_s) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
    else epoll_wait(epoll_fd, &first, 1, idle_ms);
}

/* Python must hear of what is due now: something cannot wait, there is much of it, or it has waited long enough. */
static int must_tell(const struct gather *gather, double now_s) {
    if (!gather->due_count) return 0;
    return gather->urgent || gather->due_count >= MOST_DUE || now_s - gather->due_since_s >= COLLECT_S;
}

static void *beat(void *of) {
    struct gather *gather = of;
    double before_s = 0, now_s;
    pthread_mutex_lock(&gather->lock);
    while (gather->beating && !gather->closed) {
        double nap_s = gather->nap_s, late_s = nap_s + gather->late_beats * gather->period_s;
        int epoll_fd = gather->epoll_fd, more = 1, idle_ms = gather->due_count ? COLLECT_MS : IDLE_MS;
        pthread_mutex_unlock(&gather->lock);
        nap(nap_s, idle_ms, epoll_fd);
        pthread_mutex_lock(&gather->lock);
        while (more && gather->beating && !gather->closed) {
            while (gather->handing && gather->beating && !gather->closed)
                pthread_cond_wait(&gather->handled, &gather->lock);
            double offset_s = offset_now(gather, &now_s);
            more = read_beat(gather, nap_s, nap_s && now_s - before_s < late_s, offset_s), before_s = now_s;
            int tell = must_tell(gather, now_s);
            if (tell || gather->beats >= gather->look_beats)
                if (write(gather->told_fd, &(uint64_t){1}, sizeof(uint64_t)) < 0) errno = 0; /* it knows already */
            while (((tell && gather->due_count) || gather->handing) && gather->beating && !gather->closed)
                pthread_cond_wait(&gather->handled, &gather->lock);
        }
    }
    int closed = gather->closed;
    gather->running = 0;
    pthread_mutex_unlock(&gather->lock);
    if (closed) free_all(gather);
    return NULL;
}

/* From now on a thread reads: at once what comes after a rest, and while something comes every period_s. It writes to
 * told_fd when something is due or after look_beats, and reads nothing that is due until gather_handled. What it reads
 * after a rest, or late_beats periods too late, is not counted in `reads`. 0: there can be no thread. */
int gather_start(struct gather *gather, int epoll_fd, int told_fd, double offset_s, double period_s, double late_s,
                 int look_beats, double late_beats) {
    pthread_mutex_lock(&gather->lock);
    gather->epoll_fd = epoll_fd, gather->told_fd = told_fd, gather->offset_s = offset_s, gather->period_s = period_s;
    gather->late_s = late_s, gather->look_beats = look_beats, gather->late_beats = late_beats;
    if (!gather->beating) unqueue(gather); /* was of gather_read */
    gather->beating = 1;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the threads of Python */
    if (!gather->running && !pthread_create(&thread, NULL, beat, gather)) pthread_detach(thread), gather->running = 1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    gather->beating = gather->running;
    int running = gather->running;
    pthread_cond_signal(&gather->handled);
    pthread_mutex_unlock(&gather->lock);
    return running;
}

/* No longer; the thread ends when it wakes. */
void gather_stop(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    gather->beating = 0;
    pthread_cond_signal(&gather->handled);
    pthread_mutex_unlock(&gather->lock);
}

/* What the beats since the last call have brought: the numbers of `gather` up to `late`, copied. If something is due,
 * nothing is read until gather_handled. */
void gather_collect(struct gather *gather, int32_t *into) {
    pthread_mutex_lock(&gather->lock);
    memcpy(into, gather, offsetof(struct gather, taken));
    gather->beats = gather->reads = gather->blurred = gather->all = 0;
    gather->handing |= gather->due_count > 0;
    unqueue(gather);
    pthread_mutex_unlock(&gather->lock);
}

/* What was collected has been looked at. */
void gather_handled(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    gather->handing = 0;
    pthread_cond_signal(&gather->handled);
    pthread_mutex_unlock(&gather->lock);
}

void gather_free(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    int running = gather->running;
    gather->closed = 1;
    pthread_cond_signal(&gather->handled);
    pthread_mutex_unlock(&gather->lock);
    if (!running) free_all(gather);
}
