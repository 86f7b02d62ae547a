/* metronome: an OpenAI-compatible event stream on loopback whose every token leaves at a known instant.
 *
 *   metronome PORT TTFT_US ITL_US [TICK_US] [LOG]
 *
 * Steady: the tokens of a stream leave ITL apart, and the streams' phases are spread evenly. With TICK_US all tokens
 * wait for the next multiple of it, as those of an engine's steps do. ITL_US 0: as fast as the client reads (a null
 * server). LOG gets one struct sent a token, with the instant (CLOCK_MONOTONIC) just before its write. One thread, one
 * epoll, a heap of due times.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IN_MAX = 1 << 18, OUT_MAX = 1 << 16, EVENTS = 1024, FD_MAX = 1 << 17 };

struct sent { /* one line of the log */
    uint64_t request;
    uint32_t index, tokens;
    int64_t send_ns, request_ns;
};

struct stream { /* one connection, and the answer it carries */
    int fd, slot; /* slot: place in the heap, -1 when nothing is due */
    bool chat, usage, running, full;
    uint32_t tokens, next;
    uint64_t request;
    int64_t request_ns, due_ns;
    size_t in_len, out_len;
    char *in, out[OUT_MAX];
};

static struct stream *streams[FD_MAX], *heap[FD_MAX];
static int heap_len, epoll_fd;
static int64_t ttft_ns, itl_ns, tick_ns;
static FILE *log_file;
static volatile sig_atomic_t stopped;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* -- the heap: earliest due time on top */

static void place(struct stream *s, int at) {
    heap[at] = s;
    s->slot = at;
}

static void sift(int at) {
    struct stream *s = heap[at];
    while (at > 0 && heap[(at - 1) / 2]->due_ns > s->due_ns) {
        place(heap[(at - 1) / 2], at);
        at = (at - 1) / 2;
    }
    for (;;) {
        int least = 2 * at + 1;
        if (least + 1 < heap_len && heap[least + 1]->due_ns < heap[least]->due_ns) least++;
        if (least >= heap_len || heap[least]->due_ns >= s->due_ns) break;
        place(heap[least], at);
        at = least;
    }
    place(s, at);
}

static int64_t first_due_ns(const struct stream *s) { /* steady: phases spread by the golden ratio */
    int64_t due_ns = s->request_ns + ttft_ns;
    if (tick_ns > 0 || itl_ns == 0) return due_ns;
    int64_t phase_ns = (int64_t)((double)(s->request % 100000) * 0.6180339887 * (double)itl_ns) % itl_ns;
    return due_ns + (phase_ns - due_ns % itl_ns + itl_ns) % itl_ns;
}

static void schedule(struct stream *s, int64_t due_ns) {
    if (tick_ns > 0) due_ns = (due_ns + tick_ns - 1) / tick_ns * tick_ns;
    s->due_ns = due_ns;
    place(s, heap_len++);
    sift(s->slot);
}

static void unschedule(struct stream *s) {
    if (s->slot < 0) return;
    struct stream *last = heap[--heap_len];
    if (last != s) {
        place(last, s->slot);
        sift(last->slot);
    }
    s->slot = -1;
}

/* -- output: chunked HTTP, kept back only when the socket is full */

static void flush_out(struct stream *s) {
    ssize_t n = write(s->fd, s->out, s->out_len);
    size_t left = s->out_len - (n > 0 ? (size_t)n : 0);
    memmove(s->out, s->out + s->out_len - left, left);
    s->out_len = left;
    if (s->full != (left > 0)) {
        s->full = left > 0;
        struct epoll_event e = {.events = s->full ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.fd = s->fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_MOD, s->fd, &e);
    }
}

static void put(struct stream *s, const char *text, size_t n) {
    if (s->out_len + n <= OUT_MAX) {
        memcpy(s->out + s->out_len, text, n);
        s->out_len += n;
    }
}

static void put_event(struct stream *s, const char *json) {
    char head[24];
    size_t n = strlen(json);
    put(s, head, snprintf(head, sizeof head, "%zx\r\ndata: ", n + 8));
    put(s, json, n);
    put(s, "\n\n\r\n", 4);
}

static void put_reply(struct stream *s, const char *status, const char *json) {
    char head[200];
    const char *form = "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n";
    put(s, head, snprintf(head, sizeof head, form, status, strlen(json)));
    put(s, json, strlen(json));
    flush_out(s);
}

/* -- one token */

static void put_token(struct stream *s) {
    const char *finish = s->next + 1 == s->tokens ? "\"length\"" : "null";
    char json[700], usage[128] = "";
    if (s->usage)
        snprintf(usage, sizeof usage, ",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":%u,\"completion_tokens\":%u}",
                 s->next + 9, s->next + 1);
    if (s->chat)
        snprintf(json, sizeof json,
                 "{\"id\":\"chatcmpl-%lx\",\"object\":\"chat.completion.chunk\",\"created\":1764000000,"
                 "\"model\":\"metronome\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%u\"},"
                 "\"logprobs\":null,\"finish_reason\":%s,\"token_ids\":null}]%s}", s->request, s->next, finish, usage);
    else
        snprintf(json, sizeof json,
                 "{\"id\":\"cmpl-%lx\",\"object\":\"text_completion\",\"created\":1764000000,\"model\":\"metronome\","
                 "\"choices\":[{\"index\":0,\"text\":\" word%u\",\"logprobs\":null,\"finish_reason\":%s}]%s}",
                 s->request, s->next, finish, usage);
    put_event(s, json);
}

static void beat(struct stream *s) {
    put_token(s);
    bool last = s->next + 1 == s->tokens;
    if (last) {
        char json[300];
        snprintf(json, sizeof json,
                 "{\"id\":\"c-%lx\",\"object\":\"%s\",\"created\":1764000000,\"model\":\"metronome\",\"choices\":[],"
                 "\"usage\":{\"prompt_tokens\":8,\"total_tokens\":%u,\"completion_tokens\":%u}}",
                 s->request, s->chat ? "chat.completion.chunk" : "text_completion", s->tokens + 8, s->tokens);
        put_event(s, json);
        put(s, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 24);
    }
    struct sent line = {s->request, s->next, s->tokens, now_ns(), s->request_ns};
    flush_out(s);
    if (log_file) fwrite(&line, sizeof line, 1, log_file);
    s->next++;
    s->running = !last;
    if (!last) schedule(s, tick_ns > 0 ? s->due_ns + (itl_ns > 0 ? itl_ns : 1) : s->due_ns + itl_ns);
}

/* -- requests */

static long number_behind(const char *text, const char *key, long otherwise) {
    const char *at = strstr(text, key);
    if (!at) return otherwise;
    for (at += strlen(key); *at == '"' || *at == ':' || *at == ' ';) at++;
    return strtol(at, NULL, 10);
}

static uint64_t request_number(const char *head) { /* X-Request-Id: ...-NUMBER; else how many had none before it */
    static uint64_t without;
    const char *at = strcasestr(head, "x-request-id:"), *dash = NULL;
    for (const char *p = at ? at + 13 : ""; *p && *p != '\r'; p++)
        if (*p == '-') dash = p;
    char *end = NULL;
    uint64_t number = dash ? strtoull(dash + 1, &end, 10) : 0;
    return end > dash + 1 && (*end == '\r' || !*end) ? number : (UINT64_C(1) << 40) + without++;
}

static void begin(struct stream *s, const char *head, const char *body) {
    if (strncmp(head, "POST ", 5) != 0) {
        put_reply(s, "200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"metronome\",\"object\":\"model\"}]}");
        return;
    }
    long tokens = number_behind(body, "\"max_completion_tokens\"", number_behind(body, "\"max_tokens\"", 16));
    s->request_ns = now_ns();
    s->request = request_number(head);
    s->chat = strstr(head, "/chat/") != NULL && strstr(head, "/chat/") < strchr(head, '\n');
    s->usage = strstr(body, "continuous_usage_stats") != NULL;
    s->tokens = tokens < 1 ? 1 : (uint32_t)tokens;
    s->next = 0;
    s->running = true;
    const char *ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    put(s, ok, strlen(ok));
    flush_out(s);
    schedule(s, first_due_ns(s));
}

static void drop(struct stream *s) {
    unschedule(s);
    streams[s->fd] = NULL;
    close(s->fd);
    free(s->in);
    free(s);
}

static void take_request(struct stream *s) {
    char *end = memmem(s->in, s->in_len, "\r\n\r\n", 4);
    if (!end || s->running) return;
    *end = 0;
    const char *length = strcasestr(s->in, "\r\ncontent-length:");
    size_t body = length ? strtoul(length + 17, NULL, 10) : 0, whole = (size_t)(end + 4 - s->in) + body;
    if (s->in_len < whole) {
        *end = '\r';
        return;
    }
    char after = s->in[whole];
    s->in[whole] = 0;
    begin(s, s->in, end + 4);
    s->in[whole] = after;
    memmove(s->in, s->in + whole, s->in_len - whole);
    s->in_len -= whole;
}

static void readable(struct stream *s) {
    for (;;) {
        ssize_t n = read(s->fd, s->in + s->in_len, IN_MAX - 1 - s->in_len);
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            drop(s);
            return;
        }
        s->in_len += (size_t)n;
        s->in[s->in_len] = 0;
    }
    take_request(s);
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= FD_MAX) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct stream *s = calloc(1, sizeof *s);
        s->fd = fd;
        s->slot = -1;
        s->in = malloc(IN_MAX);
        streams[fd] = s;
        struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e);
    }
}

static int listen_on(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t n = sizeof a;
    if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 8192) || getsockname(fd, (struct sockaddr *)&a, &n)) {
        perror("metronome");
        exit(1);
    }
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

static void stop(int signal_number) {
    (void)signal_number;
    stopped = 1;
}

static void run(int listener) {
    struct epoll_event ready[EVENTS];
    while (!stopped) {
        int64_t wait_ns = heap_len ? heap[0]->due_ns - now_ns() : INT64_C(1000000000);
        struct timespec wait = {0, 0};
        if (wait_ns > 0) wait = (struct timespec){wait_ns / 1000000000, wait_ns % 1000000000};
        int n = epoll_pwait2(epoll_fd, ready, EVENTS, &wait, NULL);
        for (int i = 0; i < n; i++) {
            struct stream *s = streams[ready[i].data.fd];
            if (ready[i].data.fd == listener) accept_all(listener);
            else if (s && ready[i].events & EPOLLOUT) flush_out(s);
            else if (s) readable(s);
        }
        int64_t now = now_ns();
        for (int lot = heap_len; lot > 0 && heap_len && heap[0]->due_ns <= now; lot--) {
            struct stream *s = heap[0];
            unschedule(s);
            beat(s);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: metronome PORT TTFT_US ITL_US [TICK_US] [LOG]\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    ttft_ns = atol(argv[2]) * 1000;
    itl_ns = atol(argv[3]) * 1000;
    tick_ns = argc > 4 ? atol(argv[4]) * 1000 : 0;
    if (argc > 5) log_file = fopen(argv[5], "wb");
    epoll_fd = epoll_create1(0);
    int listener = listen_on(atoi(argv[1]));
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e);
    run(listener);
    if (log_file) fclose(log_file);
    return 0;
}
