/* reader: the least a client can do. Reads event streams with the kernel's stamps and throws them away.
 *
 *   reader PORT STREAMS TOKENS SPREAD_S
 *
 * Prints the CPU microseconds a token costs: one epoll, one recvmsg a token, nothing kept. What another client costs
 * beyond this is its own.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static int ask(int port, int number, int tokens) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) return perror("connect"), -1;
    char body[256], head[512];
    int body_len = snprintf(body, sizeof body,
                            "{\"model\":\"metronome\",\"messages\":[],\"max_tokens\":%d,\"stream\":true,"
                            "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}",
                            tokens);
    int len = snprintf(head, sizeof head,
                       "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: bench-%d\r\n"
                       "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                       number, body_len, body);
    return write(fd, head, len) == len ? fd : (perror("write"), -1);
}

int main(int argc, char **argv) {
    if (argc != 5) return fputs("reader PORT STREAMS TOKENS SPREAD_S\n", stderr), 2;
    int port = atoi(argv[1]), streams = atoi(argv[2]), tokens = atoi(argv[3]), open = 0;
    double spread_s = atof(argv[4]);
    int epoll_fd = epoll_create1(0);
    for (int i = 0; i < streams; i++, open++) {
        struct epoll_event wanted = {.events = EPOLLIN, .data.fd = ask(port, i, tokens)};
        if (wanted.data.fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wanted.data.fd, &wanted)) return 1;
        usleep(1e6 * spread_s / streams);
    }
    static char data[65536];
    char control[128];
    struct epoll_event ready[256];
    double began_s = cpu_s();
    while (open) {
        int n = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            struct iovec into = {data, sizeof data};
            struct msghdr message = {
                .msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
            ssize_t len = recvmsg(ready[i].data.fd, &message, 0);
            if (len <= 0 || memmem(data, len, "[DONE]", 6)) close(ready[i].data.fd), open--;
        }
    }
    printf("%.2f\n", 1e6 * (cpu_s() - began_s) / streams / tokens);
    return 0;
}
