/* Tests the plugin's operations between two classes of one process: plugin FILE PROTOCOL. */
#include "library.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct table *ops;
static char *protocol;

enum { TAG = 7, FAR = 0x7fffffff };

/* A server that listens, and a client that has looked up the server. */
struct pair {
    struct side server, client;
    address_t *to_server;
};

static void open_pair(struct pair *pair, struct init_info init) {
    open_side(&pair->server, ops, protocol, true, init);
    open_side(&pair->client, ops, protocol, false, init);
    CHECK(ops->addr_lookup(&pair->client.class, pair->server.name, &pair->to_server) == NA_SUCCESS);
}

static void close_pair(struct pair *pair) {
    ops->addr_free(&pair->client.class, pair->to_server);
    close_side(&pair->client);
    close_side(&pair->server);
}

static void wait_both(struct pair *pair, struct result *result, int calls) {
    wait_for(&pair->server, &pair->client, result, calls);
}

static int send_unexpected(struct side *side, address_t *to, const void *bytes, size_t size, uint32_t tag,
                           struct result *result, op_t *op) {
    return ops->msg_send_unexpected(&side->class, &side->context, note, result, bytes, size, NULL, to, 0, tag, op);
}

static int send_expected(struct side *side, address_t *to, const void *bytes, size_t size, uint32_t tag,
                         struct result *result, op_t *op) {
    return ops->msg_send_expected(&side->class, &side->context, note, result, bytes, size, NULL, to, 0, tag, op);
}

static int recv_unexpected(struct side *side, void *bytes, size_t size, struct result *result, op_t *op) {
    return ops->msg_recv_unexpected(&side->class, &side->context, note, result, bytes, size, NULL, op);
}

static int recv_expected(struct side *side, address_t *from, void *bytes, size_t size, uint32_t tag,
                         struct result *result, op_t *op) {
    return ops->msg_recv_expected(&side->class, &side->context, note, result, bytes, size, NULL, from, 0, tag, op);
}

static op_t *operation(struct side *side) {
    op_t *op = ops->op_create(&side->class, 0);
    CHECK(op);
    return op;
}

/* Tests the table, and the functions that need no class. */
static void tables(void) {
    struct protocol *list = NULL, *next;
    struct info info = {protocol, NULL, defaults()};
    class_t class;
    int count = 0;
    CHECK(sizeof *ops == 52 * sizeof(void *));
    CHECK(strcmp(ops->class_name, "conduit") == 0);
    CHECK(ops->check_protocol("shm") && ops->check_protocol("udp") && ops->check_protocol("ofi") &&
          ops->check_protocol("conduit"));
    CHECK(!ops->check_protocol("tcp") && !ops->check_protocol("") && !ops->check_protocol(NULL));
    CHECK(ops->get_protocol_info(&info, &list) == NA_SUCCESS);
    for (; list; list = next, count++) {
        next = list->next;
        CHECK(strcmp(list->class_name, "conduit") == 0 && strcmp(list->protocol_name, protocol) == 0);
        CHECK(list->device_name[0]);
        free(list->class_name);
        free(list->protocol_name);
        free(list->device_name);
        free(list);
    }
    CHECK(count > 0);
    info.protocol_name = "tcp";
    CHECK(ops->get_protocol_info(&info, &list) == NA_SUCCESS && !list);

    version_major = 5;
    REFUSED(initialize(&class, ops, protocol, NULL, true, defaults()), NA_PROTONOSUPPORT, "NA version 5.0");
    version_major = 6;
    CHECK(!class.plugin_class);
    ops->cleanup();
}

/* Opens a class at an address at which another class listens. This must be refused. */
static void taken(void) {
    struct side side;
    class_t class;
    char *host;
    open_side(&side, ops, protocol, true, defaults());
    host = strstr(side.name, "//") + 2;
    host[strcspn(host, "~")] = 0;
    /* Takes the part of the name that follows libfabric's provider, or the host and the user. */
    if (strchr(host, '/')) host = strchr(host, '/') + 1;
    if (strcmp(protocol, "shm") == 0) host = strchr(host, '.') + 1;
    REFUSED(initialize(&class, ops, protocol, host, true, defaults()), NA_ADDRINUSE, host);
    close_side(&side);
}

static void no_descriptors(void) {
    struct rlimit before, none;
    class_t class;
    int next = dup(0), ret;
    CHECK(next > 0 && close(next) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = (rlim_t)next;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    ret = initialize(&class, ops, protocol, NULL, true, defaults());
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(ret == NA_NOMEM);
}

static void bad_info(void) {
    struct init_info init = defaults();
    class_t class;
    REFUSED(initialize(&class, ops, "tcp", NULL, true, init), NA_PROTONOSUPPORT, "unknown protocol tcp");
    REFUSED(initialize(&class, ops, NULL, NULL, true, init), NA_PROTONOSUPPORT, "unknown protocol");
    init.request_mem_device = true;
    REFUSED(initialize(&class, ops, protocol, NULL, true, init), NA_OPNOTSUPPORTED, "request_mem_device");
    init = defaults();
    init.max_expected_size = (size_t)1 << 40;
    REFUSED(initialize(&class, ops, protocol, NULL, true, init), NA_INVALID_ARG, "max_expected_size");
    REFUSED(ops->initialize(NULL, NULL, true), NA_INVALID_ARG, "no class");
    init = defaults();
    if (strcmp(protocol, "shm") != 0)
        REFUSED(initialize(&class, ops, protocol, "no-such-interface", true, init), NA_ADDRNOTAVAIL,
                "no-such-interface");
    else
        REFUSED(initialize(&class, ops, protocol, "no/name", true, init), NA_INVALID_ARG, "no/name");
    taken();
    no_descriptors();
}

static void addresses(struct pair *pair) {
    struct side *client = &pair->client, *server = &pair->server;
    class_t *class = &client->class;
    address_t *other, *again;
    char text[600], bytes[512];
    size_t size, needed;

    CHECK(strncmp(server->name, protocol, strlen(protocol)) == 0 && strstr(server->name, "://"));
    CHECK(ops->addr_is_self(class, client->self) && !ops->addr_is_self(class, pair->to_server));
    CHECK(!ops->addr_cmp(class, client->self, pair->to_server));
    CHECK(ops->addr_dup(class, pair->to_server, &other) == NA_SUCCESS && ops->addr_cmp(class, other, pair->to_server));
    CHECK(ops->addr_set_remove(class, other) == NA_SUCCESS);
    ops->addr_free(class, other);
    /* Looks up the class's own name, and a name with the plugin's prefix. */
    CHECK(ops->addr_lookup(class, client->name, &other) == NA_SUCCESS && ops->addr_is_self(class, other));
    ops->addr_free(class, other);
    snprintf(text, sizeof text, "conduit+%s", server->name);
    CHECK(ops->addr_lookup(class, text, &other) == NA_SUCCESS && ops->addr_cmp(class, other, pair->to_server));
    /* Converts an address to text: asks only for the size, offers too little room, and offers just
     * enough. */
    CHECK(ops->addr_to_string(class, NULL, &needed, other) == NA_SUCCESS && needed == strlen(server->name) + 1);
    size = needed - 1;
    REFUSED(ops->addr_to_string(class, text, &size, other), NA_OVERFLOW, server->name);
    size = needed;
    CHECK(ops->addr_to_string(class, text, &size, other) == NA_SUCCESS && strcmp(text, server->name) == 0);
    /* Does the same with bytes. */
    size = ops->addr_get_serialize_size(class, other);
    CHECK(size > 0 && size <= sizeof bytes);
    REFUSED(ops->addr_serialize(class, bytes, size - 1, other), NA_OVERFLOW, "bytes");
    CHECK(ops->addr_serialize(class, bytes, size, other) == NA_SUCCESS);
    CHECK(ops->addr_deserialize(class, &again, bytes, sizeof bytes, 0) == NA_SUCCESS);
    CHECK(ops->addr_cmp(class, again, other));
    ops->addr_free(class, again);
    ops->addr_free(class, other);
    REFUSED(ops->addr_deserialize(class, &again, bytes, size, ADDR_FIREWALL), NA_OPNOTSUPPORTED, "FIREWALL");
    for (needed = 0; needed < size; needed++)
        CHECK(ops->addr_deserialize(class, &again, bytes, needed, 0) == NA_INVALID_ARG);
    memset(bytes + 2, 0xff, size - 2);
    CHECK(ops->addr_deserialize(class, &again, bytes, size, 0) == NA_INVALID_ARG);
    REFUSED(ops->addr_lookup(class, "tcp://127.0.0.1:1", &other), NA_INVALID_ARG, "tcp://127.0.0.1:1");
    REFUSED(ops->addr_lookup(class, protocol, &other), NA_INVALID_ARG, protocol);
    snprintf(text, sizeof text, "%s://\xff\xfe nonsense", protocol);
    CHECK(ops->addr_lookup(class, text, &other) == NA_INVALID_ARG);
    snprintf(text, sizeof text, "%s://nonsense~nonsense~/::", protocol);
    CHECK(ops->addr_lookup(class, text, &other) == NA_INVALID_ARG);
    /* These calls are errors of the user. */
    CHECK(ops->addr_dup(class, NULL, &other) == NA_INVALID_ARG);
    CHECK(ops->addr_dup(class, server->self, &other) == NA_INVALID_ARG);
    CHECK(!ops->addr_cmp(class, client->self, server->self));
    ops->addr_free(class, NULL);
}

/* Sends messages in both directions, in the plugin's buffers, of all lengths up to the longest. */
static void messages(struct pair *pair) {
    struct side *client = &pair->client, *server = &pair->server;
    size_t longest = ops->msg_get_max_unexpected_size(&client->class), length;
    void *data[2];
    char *out = ops->msg_buf_alloc(&client->class, longest, 0, &data[0]);
    char *in = ops->msg_buf_alloc(&server->class, longest, 0, &data[1]);
    op_t *client_op = operation(client), *server_op = operation(server), *answer_op = operation(client);

    CHECK(longest >= 4096 && ops->msg_get_max_expected_size(&client->class) >= 4096);
    CHECK(ops->msg_get_max_tag(&client->class) == UINT32_MAX);
    CHECK(ops->msg_get_unexpected_header_size(&client->class) == 0);
    CHECK(ops->msg_get_expected_header_size(&client->class) == 0);
    CHECK(out && in && (uintptr_t)out % 4096 == 0);
    CHECK(ops->msg_init_unexpected(&client->class, out, longest) == NA_SUCCESS);
    CHECK(ops->msg_init_expected(&client->class, out, longest) == NA_SUCCESS);
    for (length = 0; length <= longest; length = length < longest / 3 ? 3 * length + 1 : longest + (length == longest)) {
        struct result sent = {0}, got = {0}, answered = {0}, answer = {0};
        char name[512], back[16] = {0};
        size_t size = sizeof name;
        uint32_t tag = UINT32_MAX - (uint32_t)length;
        memset(in, 0, longest);
        memset(out, (int)length + 1, longest);
        CHECK(recv_unexpected(server, in, longest, &got, server_op) == NA_SUCCESS);
        CHECK(recv_expected(client, pair->to_server, back, sizeof back, tag, &answer, answer_op) == NA_SUCCESS);
        CHECK(send_unexpected(client, pair->to_server, out, length, tag, &sent, client_op) == NA_SUCCESS);
        wait_both(pair, &got, 1);
        CHECK(got.info.kind == RECV_UNEXPECTED && got.info.ret == NA_SUCCESS && got.info.received.tag == tag);
        CHECK(got.info.received.size == length && memcmp(in, out, length) == 0);
        CHECK(length == longest || in[length] == 0);
        CHECK(ops->addr_to_string(&server->class, name, &size, got.info.received.source) == NA_SUCCESS);
        /* The name is the whole address, or the address in the network that carried the message. */
        CHECK(strstr(client->name, strstr(name, "://") + 3));
        CHECK(send_expected(server, got.info.received.source, "answer", 7, tag, &answered, server_op) == NA_SUCCESS);
        wait_both(pair, &answer, 1);
        wait_both(pair, &answered, 1);
        wait_both(pair, &sent, 1);
        CHECK(sent.info.kind == SEND_UNEXPECTED && sent.info.ret == NA_SUCCESS);
        CHECK(answered.info.kind == SEND_EXPECTED && answered.info.ret == NA_SUCCESS);
        CHECK(answer.info.kind == RECV_EXPECTED && answer.info.ret == NA_SUCCESS && answer.info.received.size == 7);
        CHECK(strcmp(back, "answer") == 0);
        ops->addr_free(&server->class, got.info.received.source);
    }
    {
        struct result sent = {0}, got = {0};
        REFUSED(send_unexpected(client, pair->to_server, out, longest + 1, TAG, &sent, client_op), NA_OVERFLOW,
                "max_unexpected_size");
        REFUSED(send_expected(client, pair->to_server, out, (size_t)1 << 40, TAG, &sent, client_op), NA_OVERFLOW,
                "max_expected_size");
        REFUSED(send_expected(client, pair->to_server, NULL, 1, TAG, &sent, client_op), NA_INVALID_ARG, "buffer");
        REFUSED(send_expected(client, NULL, out, 1, TAG, &sent, client_op), NA_INVALID_ARG, "no address");
        REFUSED(send_expected(client, server->self, out, 1, TAG, &sent, client_op), NA_INVALID_ARG, "another class");
        REFUSED(send_expected(client, pair->to_server, out, 1, TAG, &sent, NULL), NA_INVALID_ARG, "no operation");
        REFUSED(send_expected(client, pair->to_server, out, 1, TAG, &sent, server_op), NA_INVALID_ARG,
                "another class");
        /* This buffer is too short for the message. */
        CHECK(recv_expected(server, server->self, in, 3, TAG, &got, server_op) == NA_SUCCESS);
        {
            op_t *op = operation(server);
            CHECK(send_expected(server, server->self, "12345", 5, TAG, &sent, op) == NA_SUCCESS);
            wait_both(pair, &got, 1);
            wait_both(pair, &sent, 1);
            CHECK(got.info.ret == NA_MSGSIZE && sent.info.ret == NA_SUCCESS);
            ops->op_destroy(&server->class, op);
        }
    }
    ops->op_destroy(&client->class, client_op);
    ops->op_destroy(&client->class, answer_op);
    ops->op_destroy(&server->class, server_op);
    ops->msg_buf_free(&client->class, out, data[0]);
    ops->msg_buf_free(&server->class, in, data[1]);
    CHECK(!ops->msg_buf_alloc(&client->class, (size_t)1 << 62, 0, &data[0]));
}

static void messages_to_oneself(struct pair *pair) {
    struct side *side = &pair->client;
    struct result sent = {0}, got = {0};
    op_t *receive = operation(side), *send = operation(side);
    char in[8] = {0};
    CHECK(recv_unexpected(side, in, sizeof in, &got, receive) == NA_SUCCESS);
    CHECK(send_unexpected(side, side->self, "self", 5, TAG, &sent, send) == NA_SUCCESS);
    wait_both(pair, &got, 1);
    wait_both(pair, &sent, 1);
    CHECK(strcmp(in, "self") == 0 && ops->addr_is_self(&side->class, got.info.received.source));
    ops->addr_free(&side->class, got.info.received.source);
    /* This message arrives before its receive is posted. */
    CHECK(send_expected(side, side->self, "SELF", 5, TAG, &sent, send) == NA_SUCCESS);
    wait_both(pair, &sent, 2);
    CHECK(recv_expected(side, side->self, in, sizeof in, TAG, &got, receive) == NA_SUCCESS);
    wait_both(pair, &got, 2);
    CHECK(strcmp(in, "SELF") == 0);
    ops->op_destroy(&side->class, receive);
    ops->op_destroy(&side->class, send);
}

/* The results of an operation that receives several messages. */
struct several {
    int count, last;
    struct address *sources[64];
    char *starts[64];
    size_t sizes[64];
    int ret;
};

static void note_several(const struct callback_info *info) {
    struct several *several = info->arg;
    CHECK(info->kind == MULTI_RECV_UNEXPECTED && !several->last && several->count < 64);
    several->sources[several->count] = info->received.source;
    several->starts[several->count] = info->received.start;
    several->sizes[several->count] = info->received.size;
    several->count += info->ret == NA_SUCCESS;
    several->last = info->received.last;
    several->ret = info->ret;
}

static void multi_receive(struct pair *pair) {
    struct side *client = &pair->client, *server = &pair->server;
    size_t longest = ops->msg_get_max_unexpected_size(&server->class), room = 3 * longest;
    void *data;
    char *buffer = ops->msg_buf_alloc(&server->class, room, 4, &data);
    op_t *receive = ops->op_create(&server->class, OP_MULTI), *send = operation(client);
    struct several several = {0};
    struct result sent = {0};
    int i;
    CHECK(ops->has_opt_feature(&server->class, OPT_MULTI_RECV) && !ops->has_opt_feature(&server->class, 2));
    REFUSED(ops->msg_multi_recv_unexpected(&server->class, &server->context, note_several, &several, buffer,
                                           longest - 1, data, receive),
            NA_INVALID_ARG, "several");
    CHECK(ops->msg_multi_recv_unexpected(&server->class, &server->context, note_several, &several, buffer, room, data,
                                         receive) == NA_SUCCESS);
    while (!several.last) {
        char text[600];
        memset(text, several.count + 1, sizeof text);
        i = several.count;
        CHECK(send_unexpected(client, pair->to_server, text, sizeof text, TAG, &sent, send) == NA_SUCCESS);
        wait_both(pair, &sent, i + 1);
        while (several.count == i) {
            ops->poll(&server->class, &server->context, NULL);
            trigger(&server->context);
            ops->poll(&client->class, &client->context, NULL);
        }
    }
    CHECK(several.count > 2);
    for (i = 0; i < several.count; i++) {
        CHECK(several.sizes[i] == 600 && several.starts[i] >= buffer && several.starts[i] + 600 <= buffer + room);
        CHECK(several.starts[i][0] == i + 1 && several.starts[i][599] == i + 1);
        ops->addr_free(&server->class, several.sources[i]);
    }
    /* Starts the operation again and cancels it. */
    memset(&several, 0, sizeof several);
    CHECK(ops->msg_multi_recv_unexpected(&server->class, &server->context, note_several, &several, buffer, room, data,
                                         receive) == NA_SUCCESS);
    CHECK(ops->cancel(&server->class, &server->context, receive) == NA_SUCCESS);
    trigger(&server->context);
    CHECK(several.count == 0 && several.last && several.ret == NA_CANCELED);
    ops->op_destroy(&server->class, receive);
    ops->op_destroy(&client->class, send);
    ops->msg_buf_free(&server->class, buffer, data);
}

/* Returns the client's handle of memory that the server registers. The handle is serialised in
 * between. */
static memory_t *remote(struct pair *pair, memory_t *memory) {
    char bytes[256];
    memory_t *handle;
    size_t size = ops->mem_handle_get_serialize_size(&pair->server.class, memory), i;
    CHECK(size > 0 && size <= sizeof bytes);
    REFUSED(ops->mem_handle_serialize(&pair->server.class, bytes, size - 1, memory), NA_OVERFLOW, "bytes");
    CHECK(ops->mem_handle_serialize(&pair->server.class, bytes, size, memory) == NA_SUCCESS);
    for (i = 0; i < size; i++)
        CHECK(ops->mem_handle_deserialize(&pair->client.class, &handle, bytes, i) == NA_INVALID_ARG);
    CHECK(ops->mem_handle_deserialize(&pair->client.class, &handle, bytes, size) == NA_SUCCESS);
    bytes[0] ^= 0x55;
    {
        memory_t *other;
        CHECK(ops->mem_handle_deserialize(&pair->client.class, &other, bytes, size) == NA_INVALID_ARG);
    }
    return handle;
}

/* Runs a transfer of the client and returns its result. */
static int transfer(struct pair *pair, bool is_put, memory_t *local, uint64_t local_offset, memory_t *handle,
                    uint64_t offset, size_t length, op_t *op) {
    struct side *client = &pair->client;
    struct result result = {0};
    int ret = (is_put ? ops->put : ops->get)(&client->class, &client->context, note, &result, local, local_offset,
                                             handle, offset, length, pair->to_server, 0, op);
    if (ret != NA_SUCCESS) return ret;
    wait_both(pair, &result, 1);
    CHECK(result.info.kind == (is_put ? PUT : GET));
    return result.info.ret;
}

static void memory(struct pair *pair) {
    enum { BYTES = 1 << 20, HALF = BYTES / 2 };
    class_t *server = &pair->server.class, *client = &pair->client.class;
    char *there = malloc(BYTES), *here = malloc(BYTES);
    /* The server's halves in reverse order, with a segment of one byte between them. */
    struct segment segments[3] = {{there + HALF, HALF}, {there, 1}, {there + 1, HALF - 1}};
    memory_t *whole, *local, *read_only, *write_only, *h_whole, *h_read, *h_write;
    op_t *op = operation(&pair->client);
    int i;

    for (i = 0; i < BYTES; i++) here[i] = (char)(i * 7 + i / 251);
    memset(there, 0, BYTES);
    CHECK(ops->mem_handle_get_max_segments(server) >= 3);
    CHECK(ops->mem_handle_create_segments(server, segments, 3, READWRITE, &whole) == NA_SUCCESS);
    CHECK(ops->mem_handle_create(server, there, BYTES, READ_ONLY, &read_only) == NA_SUCCESS);
    CHECK(ops->mem_handle_create(server, there, BYTES, WRITE_ONLY, &write_only) == NA_SUCCESS);
    CHECK(ops->mem_handle_create(client, here, BYTES, READWRITE, &local) == NA_SUCCESS);
    {
        char bytes[256];
        memory_t *bad;
        REFUSED(ops->mem_handle_serialize(server, bytes, sizeof bytes, whole), NA_INVALID_ARG, "not registered");
        REFUSED(ops->mem_handle_create(server, there, BYTES, 8, &bad), NA_INVALID_ARG, "0x8");
        REFUSED(ops->mem_handle_create(server, NULL, 8, READWRITE, &bad), NA_INVALID_ARG, "address 0");
        REFUSED(ops->mem_handle_create_segments(server, segments, 0, READWRITE, &bad), NA_INVALID_ARG, "segments");
        REFUSED(ops->mem_register(server, whole, MEM_CUDA, 0), NA_OPNOTSUPPORTED, "CUDA");
    }
    CHECK(ops->mem_register(server, whole, MEM_HOST, 0) == NA_SUCCESS);
    CHECK(ops->mem_register(server, read_only, MEM_HOST, 0) == NA_SUCCESS);
    CHECK(ops->mem_register(server, write_only, MEM_HOST, 0) == NA_SUCCESS);
    CHECK(ops->mem_register(client, local, MEM_HOST, 0) == NA_SUCCESS);
    h_whole = remote(pair, whole);
    h_read = remote(pair, read_only);
    h_write = remote(pair, write_only);

    CHECK(transfer(pair, true, local, 0, h_whole, 0, BYTES, op) == NA_SUCCESS);
    CHECK(memcmp(there + HALF, here, HALF) == 0 && memcmp(there, here + HALF, HALF) == 0);
    memset(here, 0, BYTES);
    CHECK(transfer(pair, false, local, 0, h_whole, 0, BYTES, op) == NA_SUCCESS);
    for (i = 0; i < BYTES; i++) CHECK(here[i] == (char)(i * 7 + i / 251));
    /* This transfer has odd offsets and an odd length, and it crosses the segments. */
    memset(here, 0, BYTES);
    CHECK(transfer(pair, false, local, 333, h_whole, HALF - 1000, 2001, op) == NA_SUCCESS);
    for (i = 0; i < BYTES; i++) {
        int at = i - 333 + HALF - 1000;
        bool is_there = i >= 333 && i < 333 + 2001;
        CHECK(here[i] == (is_there ? (char)(at * 7 + at / 251) : 0));
    }
    memset(here, 1, BYTES);
    CHECK(transfer(pair, true, local, 5, h_whole, HALF - 1, 3, op) == NA_SUCCESS);
    CHECK(there[BYTES - 1] == 1 && there[0] == 1 && there[1] == 1 && there[2] != 1);
    CHECK(transfer(pair, true, local, 0, h_whole, BYTES, 0, op) == NA_SUCCESS);

    /* These transfers test rights and bounds. */
    REFUSED(transfer(pair, true, local, 0, h_read, 0, 8, op), NA_PERMISSION, "may not be written");
    REFUSED(transfer(pair, false, local, 0, h_write, 0, 8, op), NA_PERMISSION, "may not be read");
    CHECK(transfer(pair, false, local, 0, h_read, 8, 8, op) == NA_SUCCESS);
    CHECK(transfer(pair, true, local, 0, h_write, 8, 8, op) == NA_SUCCESS);
    REFUSED(transfer(pair, true, local, 0, h_whole, BYTES - 7, 8, op), NA_INVALID_ARG, "1048576 bytes");
    REFUSED(transfer(pair, true, local, BYTES - 7, h_whole, 0, 8, op), NA_INVALID_ARG, "1048576 bytes");
    REFUSED(transfer(pair, false, local, 0, h_whole, UINT64_MAX, 8, op), NA_INVALID_ARG, "1048576 bytes");
    REFUSED(transfer(pair, false, h_whole, 0, h_whole, 0, 8, op), NA_INVALID_ARG, "not memory of this process");
    REFUSED(transfer(pair, false, NULL, 0, h_whole, 0, 8, op), NA_INVALID_ARG, "no memory handle");
    REFUSED(transfer(pair, false, whole, 0, h_whole, 0, 8, op), NA_INVALID_ARG, "another class");
    REFUSED(ops->mem_register(client, h_whole, MEM_HOST, 0), NA_INVALID_ARG, "not memory of this process");

    /* The client transfers to itself. */
    {
        struct result result = {0};
        CHECK(ops->put(client, &pair->client.context, note, &result, local, 0, local, HALF, 100, pair->client.self, 0,
                       op) == NA_SUCCESS);
        wait_both(pair, &result, 1);
        CHECK(result.info.ret == NA_SUCCESS && memcmp(here, here + HALF, 100) == 0);
    }
    /* The memory is not registered any more. */
    CHECK(ops->mem_deregister(server, whole) == NA_SUCCESS);
    REFUSED(transfer(pair, false, local, 0, h_whole, 0, 8, op), NA_NOENTRY, "no such memory");
    ops->mem_handle_free(server, read_only);
    REFUSED(transfer(pair, false, local, 0, h_read, 0, 8, op), NA_NOENTRY, "no such memory");

    ops->mem_handle_free(server, whole);
    ops->mem_handle_free(server, write_only);
    ops->mem_handle_free(client, h_whole);
    ops->mem_handle_free(client, h_read);
    ops->mem_handle_free(client, h_write);
    ops->mem_handle_free(client, local);
    ops->op_destroy(client, op);
    free(there);
    free(here);
}

static void cancel(struct pair *pair) {
    struct side *client = &pair->client;
    class_t *class = &client->class;
    context_t *context = &client->context;
    struct result result = {0};
    op_t *op = operation(client);
    char in[8];

    /* Cancels an operation that has not been started or has ended. */
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS && trigger(context) == 0);
    CHECK(recv_unexpected(client, in, sizeof in, &result, op) == NA_SUCCESS);
    REFUSED(recv_unexpected(client, in, sizeof in, &result, op), NA_BUSY, "has not ended");
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS);
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS);
    CHECK(trigger(context) == 1 && result.calls == 1 && result.info.ret == NA_CANCELED);
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS && trigger(context) == 0);

    CHECK(recv_expected(client, pair->to_server, in, sizeof in, TAG, &result, op) == NA_SUCCESS);
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS);
    CHECK(trigger(context) == 1 && result.info.ret == NA_CANCELED && result.info.kind == RECV_EXPECTED);

    /* Starts a message and a transfer to a peer that makes no progress. Each must end once,
     * successfully or not. */
    result.calls = 0;
    CHECK(send_unexpected(client, pair->to_server, "x", 2, TAG, &result, op) == NA_SUCCESS);
    CHECK(ops->cancel(class, context, op) == NA_SUCCESS);
    wait_both(pair, &result, 1);
    CHECK(result.info.ret == NA_CANCELED || result.info.ret == NA_SUCCESS);
    {
        struct result got = {0};
        op_t *receive = operation(&pair->server);
        bool is_sent = result.info.ret == NA_SUCCESS;
        CHECK(recv_unexpected(&pair->server, in, sizeof in, &got, receive) == NA_SUCCESS);
        if (!is_sent) ops->cancel(&pair->server.class, &pair->server.context, receive);
        wait_both(pair, &got, 1);
        CHECK(got.info.ret == (is_sent ? NA_SUCCESS : NA_CANCELED));
        if (is_sent) ops->addr_free(&pair->server.class, got.info.received.source);
        ops->op_destroy(&pair->server.class, receive);
    }
    {
        enum { BYTES = 8 << 20 };
        char *there = calloc(1, BYTES), *here = calloc(1, BYTES);
        memory_t *memory, *local, *handle;
        int is_put;
        CHECK(ops->mem_handle_create(&pair->server.class, there, BYTES, READWRITE, &memory) == NA_SUCCESS);
        CHECK(ops->mem_register(&pair->server.class, memory, MEM_HOST, 0) == NA_SUCCESS);
        CHECK(ops->mem_handle_create(class, here, BYTES, READWRITE, &local) == NA_SUCCESS);
        handle = remote(pair, memory);
        for (is_put = 0; is_put < 2; is_put++) {
            result.calls = 0;
            CHECK((is_put ? ops->put : ops->get)(class, context, note, &result, local, 0, handle, 0, BYTES,
                                                 pair->to_server, 0, op) == NA_SUCCESS);
            CHECK(ops->cancel(class, context, op) == NA_SUCCESS);
            wait_both(pair, &result, 1);
            CHECK(result.info.ret == NA_CANCELED);
        }
        /* The peer must still serve other operations. */
        CHECK(transfer(pair, false, local, 0, handle, 0, BYTES, op) == NA_SUCCESS);
        ops->mem_handle_free(class, local);
        ops->mem_handle_free(class, handle);
        ops->mem_handle_free(&pair->server.class, memory);
        free(there);
        free(here);
    }
    /* Destroys an operation before it has ended. */
    CHECK(recv_unexpected(client, in, sizeof in, &result, op) == NA_SUCCESS);
    REFUSED((ops->op_destroy(class, op), 0), 0, "has not ended");
    result.calls = 0;
    CHECK(trigger(context) == 1 && result.calls == 1 && result.info.ret == NA_CANCELED);
    REFUSED(ops->cancel(class, context, NULL), NA_INVALID_ARG, "no operation");
}

/* The state of a callback that starts its own operation again. */
struct again {
    struct side *side;
    op_t *op;
    char in[8];
    int left;
};

static void begin_again(const struct callback_info *info) {
    struct again *again = info->arg;
    CHECK(info->ret == NA_SUCCESS);
    if (again->left-- > 0) {
        CHECK(ops->msg_send_expected(&again->side->class, &again->side->context, begin_again, again, "x", 2, NULL,
                                     again->side->self, 0, FAR, again->op) == NA_SUCCESS);
    }
}

static void use_again(struct pair *pair) {
    struct again again = {&pair->client, operation(&pair->client), {0}, 100};
    struct callback_info info = {{0}, &again, SEND_EXPECTED, NA_SUCCESS};
    begin_again(&info);
    while (again.left >= 0) {
        ops->poll(&again.side->class, &again.side->context, NULL);
        trigger(&again.side->context);
    }
    ops->op_destroy(&again.side->class, again.op);
}

/* Sleeps on the descriptor, as an event loop does. */
static void descriptors(struct pair *pair) {
    struct side *client = &pair->client, *server = &pair->server;
    struct pollfd fd = {ops->poll_get_fd(&server->class, &server->context), POLLIN, 0};
    struct result got = {0}, sent = {0};
    op_t *receive = operation(server), *send = operation(client);
    char in[8] = {0};
    unsigned count = 99;
    CHECK(fd.fd >= 0);
    CHECK(recv_unexpected(server, in, sizeof in, &got, receive) == NA_SUCCESS);
    CHECK(send_unexpected(client, pair->to_server, "wake", 5, TAG, &sent, send) == NA_SUCCESS);
    while (got.calls == 0) {
        /* The client polls without sleeping, because sending one of its packets may need a call. */
        CHECK(ops->poll(&client->class, &client->context, &count) == NA_SUCCESS);
        trigger(&client->context);
        if (!ops->poll_try_wait(&server->class, &server->context) || poll(&fd, 1, 10) == 1) {
            CHECK(ops->poll(&server->class, &server->context, &count) == NA_SUCCESS);
            trigger(&server->context);
        }
    }
    CHECK(strcmp(in, "wake") == 0);
    ops->addr_free(&server->class, got.info.received.source);
    wait_both(pair, &sent, 1);
    /* A completion that is already queued must prevent sleeping. */
    got.calls = 0;
    CHECK(recv_unexpected(server, in, sizeof in, &got, receive) == NA_SUCCESS);
    CHECK(ops->cancel(&server->class, &server->context, receive) == NA_SUCCESS);
    CHECK(ops->poll_wait(&server->class, &server->context, 1000000, &count) == NA_SUCCESS && count == 1);
    trigger(&server->context);
    CHECK(got.calls == 1 && got.info.ret == NA_CANCELED);
    while (ops->poll_wait(&server->class, &server->context, 0, NULL) == NA_SUCCESS) {
    }
    CHECK(ops->poll_wait(&server->class, &server->context, 20, &count) == NA_TIMEOUT && count == 0);
    CHECK(ops->poll(&server->class, NULL, NULL) == NA_INVALID_ARG);
    CHECK(ops->poll(&server->class, &client->context, NULL) == NA_INVALID_ARG);
    CHECK(ops->poll_wait(&server->class, NULL, 0, NULL) == NA_INVALID_ARG);
    CHECK(ops->poll_get_fd(&server->class, NULL) == -1 && !ops->poll_try_wait(&server->class, NULL));
    ops->op_destroy(&server->class, receive);
    ops->op_destroy(&client->class, send);
}

/* Opens several contexts of a class. Each must get only its own messages. */
static void contexts(void) {
    struct init_info init = defaults();
    struct side side;
    context_t second, third;
    struct result first_got = {0}, second_got = {0}, sent = {0};
    op_t *first_op, *second_op, *send_op;
    char in[2][8];
    init.max_contexts = 2;
    open_side(&side, ops, protocol, true, init);
    create_context(&side.class, &second, 1);
    REFUSED(ops->context_create(&side.class, &third, &third.plugin_context, 2), NA_INVALID_ARG, "max_contexts is 2");
    first_op = operation(&side);
    second_op = operation(&side);
    send_op = operation(&side);
    CHECK(recv_unexpected(&side, in[0], 8, &first_got, first_op) == NA_SUCCESS);
    CHECK(ops->msg_recv_unexpected(&side.class, &second, note, &second_got, in[1], 8, NULL, second_op) == NA_SUCCESS);
    CHECK(ops->msg_send_unexpected(&side.class, &side.context, note, &sent, "second", 7, NULL, side.self, 1, TAG,
                                   send_op) == NA_SUCCESS);
    CHECK(trigger(&second) == 1 && second_got.calls == 1 && strcmp(in[1], "second") == 0);
    CHECK(trigger(&side.context) == 1 && sent.calls == 1 && first_got.calls == 0);
    ops->addr_free(&side.class, second_got.info.received.source);
    CHECK(ops->msg_send_unexpected(&side.class, &second, note, &sent, "none", 5, NULL, side.self, 9, TAG, send_op) ==
          NA_INVALID_ARG);

    /* Contexts and operations must be destroyed in the right order. */
    REFUSED(ops->finalize(&side.class), NA_BUSY, "2 contexts");
    REFUSED(ops->context_destroy(&side.class, side.context.plugin_context), NA_BUSY, "1 operations");
    CHECK(ops->cancel(&side.class, &side.context, first_op) == NA_SUCCESS);
    REFUSED(ops->context_destroy(&side.class, side.context.plugin_context), NA_BUSY, "1 operations");
    CHECK(trigger(&side.context) == 1);
    CHECK(ops->context_destroy(&side.class, second.plugin_context) == NA_SUCCESS);
    ops->op_destroy(&side.class, first_op);
    ops->op_destroy(&side.class, second_op);
    ops->op_destroy(&side.class, send_op);
    ops->op_destroy(&side.class, NULL);
    close_side(&side);

    /* No call succeeds after finalize. */
    CHECK(ops->finalize(&side.class) == NA_SUCCESS);
    REFUSED(ops->addr_self(&side.class, &side.self), NA_INVALID_ARG, "finalized");
    REFUSED(ops->poll(&side.class, &side.context, NULL), NA_INVALID_ARG, "finalized");
    CHECK(!ops->op_create(&side.class, 0) && ops->msg_get_max_expected_size(&side.class) == 0);
    CHECK(ops->finalize(NULL) == NA_INVALID_ARG);
}

/* An address may outlive its class. */
static void leftovers(void) {
    struct pair pair;
    address_t *left;
    open_pair(&pair, defaults());
    CHECK(ops->addr_dup(&pair.client.class, pair.to_server, &left) == NA_SUCCESS);
    logged[0] = 0;
    close_pair(&pair);
    CHECK(strstr(logged, "were not freed"));
    ops->addr_free(&pair.client.class, left);
}

/* A class without a key must be refused. Classes with the same key must be able to communicate. */
static void keys(void) {
    static const char *const name = "CONDUIT_NA_UNAUTHENTICATED";
    struct init_info init = defaults();
    class_t class;
    struct pair pair;
    CHECK(unsetenv(name) == 0);
    if (strcmp(protocol, "shm") != 0)
        REFUSED(initialize(&class, ops, protocol, NULL, true, init), NA_ACCESS, "auth_key");
    init.auth_key = "";
    if (strcmp(protocol, "shm") != 0)
        REFUSED(initialize(&class, ops, protocol, NULL, true, init), NA_ACCESS, "empty");
    init.auth_key = "a key of the test's";
    open_pair(&pair, init);
    messages(&pair);
    close_pair(&pair);
    CHECK(setenv(name, "1", 1) == 0);
}

/* The number of bytes is far larger than may be in flight. All the segments are the same memory. */
enum { PIECE = 1 << 20, PIECES = 192 };

static memory_t *large(class_t *class, char *bytes) {
    struct segment segments[PIECES];
    memory_t *memory;
    int i;
    for (i = 0; i < PIECES; i++) {
        segments[i].base = bytes;
        segments[i].len = PIECE;
    }
    CHECK(ops->mem_handle_create_segments(class, segments, PIECES, READWRITE, &memory) == NA_SUCCESS);
    CHECK(ops->mem_register(class, memory, MEM_HOST, 0) == NA_SUCCESS);
    return memory;
}

/* The message of a serving peer to the process that started it. A byte follows once the peer's
 * memory has been written. */
struct greeting {
    char name[512], handle[64];
    size_t handle_size;
};

/* Serves this process's memory to peers until it is killed: plugin FILE PROTOCOL serve DESCRIPTOR.
 * */
static void serve(int out) {
    struct greeting greeting = {0};
    struct side side;
    char *bytes = calloc(1, PIECE);
    bool told = false;
    memory_t *memory;
    /* This process must end together with the process that started it. */
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    open_side(&side, ops, protocol, true, defaults());
    bytes[PIECE - 1] = 1;
    memory = large(&side.class, bytes);
    memcpy(greeting.name, side.name, sizeof side.name);
    greeting.handle_size = ops->mem_handle_get_serialize_size(&side.class, memory);
    CHECK(greeting.handle_size <= sizeof greeting.handle);
    CHECK(ops->mem_handle_serialize(&side.class, greeting.handle, greeting.handle_size, memory) == NA_SUCCESS);
    CHECK(write(out, &greeting, sizeof greeting) == sizeof greeting);
    for (;;) {
        CHECK(ops->poll(&side.class, &side.context, NULL) == NA_SUCCESS);
        if (!told && ((volatile char *)bytes)[0]) told = write(out, "", 1) == 1;
    }
}

/* Kills a peer during a transfer, when some but not all bytes have been transferred. */
static void killed(char *file, bool is_put) {
    struct greeting greeting;
    struct result result = {0};
    struct side side;
    address_t *peer;
    memory_t *local, *remote;
    op_t *op;
    char *bytes = calloc(1, PIECE), byte, number[16];
    int ends[2], status;
    pid_t pid;
    CHECK(pipe(ends) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl("/proc/self/exe", "plugin", file, protocol, "serve", number, (char *)NULL);
        _exit(127);
    }
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], &greeting, sizeof greeting) == sizeof greeting);
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
    open_side(&side, ops, protocol, false, defaults());
    CHECK(ops->addr_lookup(&side.class, greeting.name, &peer) == NA_SUCCESS);
    CHECK(ops->mem_handle_deserialize(&side.class, &remote, greeting.handle, greeting.handle_size) == NA_SUCCESS);
    bytes[0] = is_put;
    local = large(&side.class, bytes);
    op = operation(&side);
    CHECK((is_put ? ops->put : ops->get)(&side.class, &side.context, note, &result, local, 0, remote, 0,
                                         (size_t)PIECE * PIECES, peer, 0, op) == NA_SUCCESS);
    do {
        CHECK(ops->poll(&side.class, &side.context, NULL) == NA_SUCCESS);
    } while (is_put ? read(ends[0], &byte, 1) != 1 : !((volatile char *)bytes)[PIECE - 1]);
    CHECK(trigger(&side.context) == 0);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    wait_for(&side, &side, &result, 1);
    CHECK(result.info.ret == NA_HOSTUNREACH);
    /* The next operation to that peer must fail in the same way. */
    CHECK(send_unexpected(&side, peer, "x", 1, TAG, &result, op) == NA_SUCCESS);
    wait_for(&side, &side, &result, 2);
    CHECK(result.info.ret == NA_HOSTUNREACH);
    ops->op_destroy(&side.class, op);
    CHECK(ops->mem_deregister(&side.class, local) == NA_SUCCESS);
    ops->mem_handle_free(&side.class, local);
    ops->mem_handle_free(&side.class, remote);
    ops->addr_free(&side.class, peer);
    close_side(&side);
    CHECK(close(ends[0]) == 0);
    free(bytes);
}

int main(int argc, char **argv) {
    struct init_info init = defaults();
    struct pair pair;
    int busy;
    CHECK(argc == 3 || argc == 5);
    ops = load(argv[1]);
    protocol = argv[2];
    if (argc == 5) serve(atoi(argv[4]));
    killed(argv[1], false);
    killed(argv[1], true);
    tables();
    bad_info();
    contexts();
    leftovers();
    keys();
    for (busy = 0; busy < 2; busy++) {
        init.progress_mode = busy ? NO_BLOCK : 0;
        init.thread_mode = busy ? 3 : 0;
        open_pair(&pair, init);
        addresses(&pair);
        messages(&pair);
        messages_to_oneself(&pair);
        multi_receive(&pair);
        memory(&pair);
        cancel(&pair);
        use_again(&pair);
        if (!busy) descriptors(&pair);
        else CHECK(ops->poll_get_fd(&pair.client.class, &pair.client.context) == -1);
        close_pair(&pair);
    }
    printf("all passed\n");
    return 0;
}
