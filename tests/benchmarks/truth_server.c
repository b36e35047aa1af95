/* A streaming chat completions server that knows the truth: one thread, no allocation while it
 * serves, and a line of its log for each request:
 *
 *     ARRIVED FIRST GAP GAP ...     CLOCK_MONOTONIC ns of the request's arrival in the kernel and
 *                                   of the first token's write; ns from each token to the next
 *
 *     truth_server LOG [--ttft-ms 50] [--gap-ms 5] [--tokens 32] [--stall-ms 0 --every-ms 0]
 *
 * It prints "PORT START_NS" when it listens, and answers until SIGTERM. With --stall-ms it does
 * nothing at all for so long, each --every-ms after START_NS.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_OPEN = 65536, MOST_REQUEST = 65536, MOST_TOKENS = 1024, MOST_OUT = 4096 };
typedef long long ns_t;

typedef struct {
    int fd, length, token, place; /* place in the heap; -1: not waiting */
    int chat;                     /* else the older API of plain completions */
    ns_t due, arrived;
    ns_t written[MOST_TOKENS];
    char in[MOST_REQUEST];
} Client;

static Client *clients[MOST_OPEN], *unused[MOST_OPEN], *heap[MOST_OPEN];
static int n_unused, n_waiting, tokens = 32, poller;
static ns_t ttft = 50000000, gap = 5000000, stall, every, start;
static FILE *log_file;
static volatile sig_atomic_t over;

static ns_t now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* A heap of those that wait, by when their next token is due. */

static void put(Client *client, int place) {
    heap[place] = client;
    client->place = place;
}

static void rise(int place) {
    Client *client = heap[place];
    for (; place && heap[(place - 1) / 2]->due > client->due; place = (place - 1) / 2)
        put(heap[(place - 1) / 2], place);
    put(client, place);
}

static void sink(int place) {
    Client *client = heap[place];
    for (int child; (child = 2 * place + 1) < n_waiting; place = child) {
        if (child + 1 < n_waiting && heap[child + 1]->due < heap[child]->due)
            child++;
        if (heap[child]->due >= client->due)
            break;
        put(heap[child], place);
    }
    put(client, place);
}

static void forget(Client *client) {
    int place = client->place;
    if (place < 0)
        return;
    client->place = -1;
    if (place == --n_waiting)
        return;
    put(heap[n_waiting], place);
    rise(place);
    sink(heap[place]->place);
}

static void end(Client *client) {
    forget(client);
    close(client->fd);
    clients[client->fd] = NULL;
    unused[n_unused++] = client;
}

static int say(Client *client, const char *text, int length) {
    if (write(client->fd, text, length) == length)
        return 1;
    end(client);
    return 0;
}

static int chunk(char *out, const char *data) {
    return sprintf(out, "%x\r\n%s\r\n", (int)strlen(data), data);
}

static void note(const Client *client) {
    fprintf(log_file, "%lld %lld", client->arrived, client->written[0]);
    for (int token = 1; token < tokens; token++)
        fprintf(log_file, " %lld", client->written[token] - client->written[token - 1]);
    fputc('\n', log_file);
}

static void stream(Client *client) {
    char out[MOST_OUT], data[512];
    int n = 0, last = client->token == tokens - 1;
    if (!client->token)
        n = sprintf(out, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                         "Transfer-Encoding: chunked\r\n\r\n");
    sprintf(data, "data: {\"id\":\"chatcmpl-0123456789abcdef\",\"object\":\"%s\","
                  "\"created\":1790000000,\"model\":\"truth\",\"choices\":[{\"index\":0,"
                  "%s word%d\"%s,\"logprobs\":null,\"finish_reason\":null}]}\n\n",
            client->chat ? "chat.completion.chunk" : "text_completion",
            client->chat ? "\"delta\":{\"content\":\"" : "\"text\":\"", client->token,
            client->chat ? "}" : "");
    n += chunk(out + n, data);
    if (last) {
        n += chunk(out + n, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":"
                            "[{\"index\":0,\"delta\":{},\"text\":\"\","
                            "\"finish_reason\":\"length\"}]}\n\n");
        sprintf(data, "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[],"
                      "\"usage\":{\"prompt_tokens\":128,\"completion_tokens\":%d,"
                      "\"total_tokens\":%d}}\n\n", tokens, 128 + tokens);
        n += chunk(out + n, data);
        n += chunk(out + n, "data: [DONE]\n\n");
        n += sprintf(out + n, "0\r\n\r\n");
        forget(client);
    } else {
        client->due += gap;
        sink(client->place);
    }
    client->written[client->token++] = now(CLOCK_MONOTONIC);
    if (say(client, out, n) && last)
        note(client);
}

static void answer_get(Client *client) {
    char out[512];
    const char *body = strstr(client->in, "GET /v1/models")
                           ? "{\"object\":\"list\",\"data\":[{\"id\":\"truth\",\"object\":\"model\"}]}"
                           : "{\"engine\":\"truth\",\"reasoning\":\"none\"}";
    int n = sprintf(out, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                         "Content-Length: %d\r\n\r\n%s", (int)strlen(body), body);
    client->length = 0;
    say(client, out, n);
}

/* When the bytes came into the kernel, whatever we were doing then. */
static ns_t arrival(struct msghdr *message) {
    struct cmsghdr *one = CMSG_FIRSTHDR(message);
    if (!one || one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_TIMESTAMPNS)
        return now(CLOCK_MONOTONIC);
    struct timespec t;
    memcpy(&t, CMSG_DATA(one), sizeof t);
    return t.tv_sec * 1000000000LL + t.tv_nsec - (now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC));
}

static void receive(Client *client) {
    char control[128];
    struct iovec space = {client->in + client->length, MOST_REQUEST - 1 - client->length};
    struct msghdr message = {.msg_iov = &space, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    int got = recvmsg(client->fd, &message, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        end(client);
        return;
    }
    client->length += got;
    client->in[client->length] = 0;
    char *head_end = strstr(client->in, "\r\n\r\n");
    if (!head_end)
        return;
    if (!strncmp(client->in, "GET", 3)) {
        answer_get(client);
        return;
    }
    char *said = strcasestr(client->in, "content-length:");
    int body = said && said < head_end ? atoi(said + 15) : 0;
    if (client->length < head_end - client->in + 4 + body)
        return;
    client->chat = strncmp(client->in, "POST /v1/completions", 20) != 0;
    client->length = client->token = 0;
    client->arrived = arrival(&message);
    client->due = now(CLOCK_MONOTONIC) + ttft; /* as a server would that finds it only now */
    put(client, n_waiting++);
    rise(client->place);
}

static void take_in(int listener) {
    int fd, yes = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= MOST_OPEN) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &yes, sizeof yes);
        Client *client = n_unused ? unused[--n_unused] : malloc(sizeof *client);
        client->fd = fd;
        client->length = 0;
        client->place = -1;
        clients[fd] = client;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

/* Nothing is read and nothing is written while we stand still. */
static void stand_still(void) {
    ns_t since = (now(CLOCK_MONOTONIC) - start) % every;
    if (now(CLOCK_MONOTONIC) - start < every || since >= stall)
        return;
    struct timespec rest = {(stall - since) / 1000000000, (stall - since) % 1000000000};
    nanosleep(&rest, NULL);
}

static ns_t wait_ns(void) {
    ns_t most = 100000000, moment = now(CLOCK_MONOTONIC);
    if (n_waiting && heap[0]->due - moment < most)
        most = heap[0]->due - moment;
    if (stall && every - (moment - start) % every < most)
        most = every - (moment - start) % every;
    return most < 0 ? 0 : most;
}

static void serve(int listener) {
    struct epoll_event events[256];
    while (!over) {
        struct timespec timeout = {0, wait_ns()};
        int n = epoll_pwait2(poller, events, 256, &timeout, NULL);
        if (stall)
            stand_still();
        for (int i = 0; i < n; i++)
            if (events[i].data.fd == listener)
                take_in(listener);
            else if (clients[events[i].data.fd])
                receive(clients[events[i].data.fd]);
        while (n_waiting && heap[0]->due <= now(CLOCK_MONOTONIC)) {
            stream(heap[0]);
            if (stall)
                stand_still();
        }
        if (!n_waiting)
            fflush(log_file);
    }
}

static void stop(int signal) {
    (void)signal;
    over = 1;
}

int main(int count, char **words) {
    for (int i = 2; i + 1 < count; i += 2) {
        double value = atof(words[i + 1]);
        if (!strcmp(words[i], "--ttft-ms")) ttft = value * 1e6;
        else if (!strcmp(words[i], "--gap-ms")) gap = value * 1e6;
        else if (!strcmp(words[i], "--tokens")) tokens = value;
        else if (!strcmp(words[i], "--stall-ms")) stall = value * 1e6;
        else if (!strcmp(words[i], "--every-ms")) every = value * 1e6;
        else count = 0;
    }
    if (count < 2 || count % 2 || tokens < 1 || tokens > MOST_TOKENS || stall > every) {
        fprintf(stderr, "truth_server: LOG [--ttft-ms N] [--gap-ms N] [--tokens N]"
                        " [--stall-ms N --every-ms N]\n");
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    log_file = fopen(words[1], "w");
    if (!log_file || bind(listener, (void *)&address, size) || listen(listener, 4096) ||
        getsockname(listener, (void *)&address, &size)) {
        perror("truth_server");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, stop);
    signal(SIGINT, stop);
    poller = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    start = now(CLOCK_MONOTONIC);
    printf("%d %lld\n", ntohs(address.sin_port), start);
    fflush(stdout);
    serve(listener);
    fclose(log_file);
    return 0;
}
