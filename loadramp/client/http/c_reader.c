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

#define GATHER_LAYOUT 5
#define LOT_EVENTS 256    /* noted events are due when there are so many */
#define READ_EVENTS 256   /* a read with more events is not noted */
#define LOT_READS 32      /* plain reads are due when there are so many */
#define LOT_BYTES 16384   /* from here on a lot is due, however few its events are */
#define READ_BYTES 65536
#define MOST_READS 128    /* in one call, */
#define MOST_DUE 32       /* and so many that Python must look at: other tasks must not wait for a whole engine step */
#define FORESIGHT_S 5e-5  /* a stamp may be so much ahead of the clock that was read after it */
#define STEP_S 1e-3       /* as in poller.py: clocks that move apart so far are not believed for DISTRUST_S */
#define DISTRUST_S 0.1
#define TOGETHER_S 2e-5
#define NAP_S 1e-3        /* on the beat, after the first read; then twice as long, up to the period */
#define IDLE_MS 100       /* the thread looks so often whether it is still wanted */
#define MOST_PARTS 16
#define SHAPE_BYTES 4096
#define MOST_TOKENS 10000000 /* as in stream/usage.py */

struct event {
    double stamp_s;                 /* CLOCK_MONOTONIC */
    int32_t tokens, characters;     /* tokens so far, -1 where the event does not say */
};

enum hole { END, TEXT, STRING, NUMBER, COUNT }; /* of the shape: the text and the count matter, the others do not */

struct part { int32_t length, hole; }; /* so many bytes of the shape as they are, and what follows them in an event */

struct lot {
    int32_t noted, reads, plain;    /* plain: all of the reads, or all but the last */
    int32_t kernel, late;           /* some read was stamped by the kernel; so many were read late */
    int32_t over, error;            /* the other end has closed; with an error, its errno */
    int32_t text, used;             /* bytes in data: of the texts (JSON strings, a line each); with the reads behind */
    int32_t starts[LOT_READS], ends[LOT_READS]; /* of a plain read's JSON, and of a read, in data behind the texts */
    double stamps_s[LOT_READS];
    struct event events[LOT_EVENTS + READ_EVENTS];
    char data[LOT_BYTES + READ_BYTES];
};

struct kept {
    int32_t parts, learnt;          /* of the shape, 0 where nothing is noted now; of the latest one */
    int32_t most_events, most_reads; /* so many are a lot */
    struct part part[MOST_PARTS];
    char shape[SHAPE_BYTES];
    struct lot lot;
};

struct gather {
    int32_t due[MOST_READS];        /* sockets with something to give back, or that are not kept here */
    int32_t due_count, several;     /* several: reads of the latest call that held more than one noted event */
    int32_t beats, reads, blurred, all; /* reads on punctual beats, those of them with several events, on any beat */
    int32_t noted, late;            /* events and late reads that wait in all lots, after gather_count */
    struct lot taken;
    int32_t capacity;
    struct kept **kept;             /* by file descriptor */
    pthread_mutex_t lock;
    pthread_cond_t handled;
    int beating, running, closed, more, epoll_fd, told_fd, look_beats;
    double nap_s, period_s, late_s, late_beats, offset_s, distrust_until_s;
    char data[READ_BYTES];
};

int gather_layout(void) { return GATHER_LAYOUT; }

struct gather *gather_new(void) {
    struct gather *gather = calloc(1, sizeof *gather);
    if (gather) pthread_mutex_init(&gather->lock, NULL), pthread_cond_init(&gather->handled, NULL);
    return gather;
}

static struct kept *kept_of(struct gather *gather, int fd) { return fd < gather->capacity ? gather->kept[fd] : NULL; }

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
        memset(&kept->lot, 0, offsetof(struct lot, starts));
        kept->parts = kept->learnt = 0, kept->most_reads = 1;
        kept->most_events = 1 + fd * 37 % LOT_EVENTS; /* streams of one step must not all be due in the same one */
    }
    pthread_mutex_unlock(&gather->lock);
    return kept != NULL;
}

/* No longer. 0: not while something waits, unless it may be lost. */
int gather_drop(struct gather *gather, int fd, int lose) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    int done = !kept || lose || !(kept->lot.noted || kept->lot.reads || kept->lot.over);
    if (kept && done) free(kept), gather->kept[fd] = NULL;
    pthread_mutex_unlock(&gather->lock);
    return done;
}

/* Moves what waits into gather->taken. */
void gather_take(struct gather *gather, int fd) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    struct lot *lot = kept ? &kept->lot : NULL, *taken = &gather->taken;
    memset(taken, 0, offsetof(struct lot, starts));
    if (lot) {
        memcpy(taken, lot, lot->reads ? offsetof(struct lot, events) : offsetof(struct lot, starts));
        memcpy(taken->events, lot->events, lot->noted * sizeof *lot->events);
        memcpy(taken->data, lot->data, lot->used);
        memset(lot, 0, offsetof(struct lot, starts));
        if (taken->noted) kept->most_events = LOT_EVENTS;
        if (taken->reads) kept->parts = 0;
    }
    pthread_mutex_unlock(&gather->lock);
}

/* Sets the shape that gather_note may turn on. Of other events, so many are a lot from now on. */
void gather_learn(struct gather *gather, int fd, int most_reads, int parts, const struct part *part, int length,
                  const char *shape) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    if (kept) {
        kept->parts = 0, kept->learnt = parts, kept->most_reads = most_reads;
        memcpy(kept->part, part, parts * sizeof *part);
        memcpy(kept->shape, shape, length);
    }
    pthread_mutex_unlock(&gather->lock);
}

/* Events of the shape may be noted from now on, as every read that was taken is parsed and the next is sure to begin
 * with a chunk and an event: so not if another read has come since. */
void gather_note(struct gather *gather, int fd, int sure) {
    pthread_mutex_lock(&gather->lock);
    struct kept *kept = kept_of(gather, fd);
    if (kept) kept->parts = sure && !kept->lot.reads ? kept->learnt : 0;
    pthread_mutex_unlock(&gather->lock);
}

/* Counts what waits in all lots. */
void gather_count(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    gather->noted = gather->late = 0;
    for (int fd = 0; fd < gather->capacity; fd++)
        if (gather->kept[fd])
            gather->noted += gather->kept[fd]->lot.noted, gather->late += gather->kept[fd]->lot.late;
    pthread_mutex_unlock(&gather->lock);
}

static void free_all(struct gather *gather) {
    for (int fd = 0; fd < gather->capacity; fd++) free(gather->kept[fd]);
    free(gather->kept);
    pthread_mutex_destroy(&gather->lock), pthread_cond_destroy(&gather->handled);
    free(gather);
}

static double clock_s(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + 1e-9 * time.tv_nsec;
}

/* Notes the events of a read that holds nothing else, all or none. Returns how many. */
static int note(struct kept *kept, const char *data, int length, double stamp_s) {
    const char *at = data, *end = data + length;
    struct lot *lot = &kept->lot;
    int noted = lot->noted, text = lot->text;
    for (; at < end; noted++) {
        if (noted == LOT_EVENTS + READ_EVENTS) return 0;
        struct event *event = lot->events + noted;
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
                memcpy(lot->data + text, from, at - from);
                text += at - from;
                lot->data[text++] = '\n';
            }
        }
        if (size != at - begin - 4) return 0;
    }
    int events = noted - lot->noted;
    lot->noted = noted, lot->text = lot->used = text;
    return events;
}

/* Keeps a read with whatever is in it. */
static void keep(struct kept *kept, const char *data, int length, double stamp_s, int stamped) {
    struct lot *lot = &kept->lot;
    int start = stamped ? plain_start(data, length) : 0;
    kept->parts = 0;
    memcpy(lot->data + lot->used, data, length);
    lot->stamps_s[lot->reads] = stamp_s;
    lot->starts[lot->reads] = lot->used - lot->text + start;
    lot->used += length;
    lot->ends[lot->reads++] = lot->used - lot->text;
    lot->plain += start > 0;
}

/* There is something to give back. */
static int is_due(const struct kept *kept) {
    const struct lot *lot = &kept->lot;
    return lot->over || lot->plain < lot->reads || lot->reads >= kept->most_reads || lot->noted >= kept->most_events
        || lot->used > LOT_BYTES || (lot->noted && lot->reads);
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
        kept->lot.over = 1, kept->lot.error = length ? errno : 0;
        return 1;
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
    int events = stamped && kept->parts && !kept->lot.reads ? note(kept, gather->data, length, stamp_s) : 0;
    if (!events) keep(kept, gather->data, length, stamp_s, stamped);
    gather->several += events > 1;
    return is_due(kept);
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
        if (!kept || read_once(gather, kept, fd, offset_s, late_s)) gather->due[gather->due_count++] = fd;
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
    gather->due_count = gather->several = 0;
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
    while (gather->more && !gather->due_count);
    gather->beats++, gather->all += all;
    if (punctual) gather->reads += all, gather->blurred += gather->several;
    double next_s = nap_s ? 2 * nap_s : NAP_S;
    gather->nap_s = !all ? 0 : next_s < gather->period_s ? next_s : gather->period_s;
    return gather->more;
}

/* Sleeps until due_s; where there was nothing to read, until there is (or some time has passed). */
static void nap(double due_s, int idle, int epoll_fd) {
    struct timespec time = {(time_t)due_s, (long)((due_s - (time_t)due_s) * 1e9)};
    struct epoll_event first;
    if (idle) epoll_wait(epoll_fd, &first, 1, IDLE_MS);
    else clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL);
}

static void *beat(void *of) {
    struct gather *gather = of;
    double before_s = 0, now_s;
    pthread_mutex_lock(&gather->lock);
    while (gather->beating && !gather->closed) {
        double nap_s = gather->nap_s, late_s = nap_s + gather->late_beats * gather->period_s;
        int epoll_fd = gather->epoll_fd, more = 1;
        pthread_mutex_unlock(&gather->lock);
        nap(clock_s(CLOCK_MONOTONIC) + nap_s, !nap_s, epoll_fd);
        pthread_mutex_lock(&gather->lock);
        while (more && gather->beating && !gather->closed) {
            double offset_s = offset_now(gather, &now_s);
            more = read_beat(gather, nap_s, nap_s && now_s - before_s < late_s, offset_s), before_s = now_s;
            if (gather->due_count || gather->beats >= gather->look_beats)
                if (write(gather->told_fd, &(uint64_t){1}, sizeof(uint64_t)) < 0) errno = 0; /* it knows already */
            while (gather->due_count && gather->beating && !gather->closed)
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
    if (!gather->beating) gather->due_count = 0; /* was of gather_read */
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

/* What the beats since the last call have brought: the numbers of `gather` up to `late`, copied. */
void gather_collect(struct gather *gather, int32_t *into) {
    pthread_mutex_lock(&gather->lock);
    memcpy(into, gather, offsetof(struct gather, late) + sizeof gather->late);
    gather->beats = gather->reads = gather->blurred = gather->all = 0;
    pthread_mutex_unlock(&gather->lock);
}

/* What was due has been looked at. */
void gather_handled(struct gather *gather) {
    pthread_mutex_lock(&gather->lock);
    gather->due_count = 0;
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
