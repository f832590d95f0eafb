/* The interface between NA of version 6 and a plugin, from the view of a library that loads
 * plugins. */
#ifndef CONDUIT_TEST_NA_TABLE_H
#define CONDUIT_TEST_NA_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The return codes that the programs check. */
enum {
    NA_SUCCESS = 0, NA_PERMISSION = 1, NA_NOENTRY = 2, NA_AGAIN = 4, NA_NOMEM = 5, NA_ACCESS = 6, NA_BUSY = 8,
    NA_INVALID_ARG = 11, NA_OVERFLOW = 13, NA_MSGSIZE = 14, NA_PROTONOSUPPORT = 15, NA_OPNOTSUPPORTED = 16,
    NA_ADDRINUSE = 17, NA_ADDRNOTAVAIL = 18, NA_HOSTUNREACH = 19, NA_TIMEOUT = 20, NA_CANCELED = 21
};

enum kind { SEND_UNEXPECTED, RECV_UNEXPECTED, MULTI_RECV_UNEXPECTED, SEND_EXPECTED, RECV_EXPECTED, PUT, GET };
enum rights { READ_ONLY = 1, WRITE_ONLY = 2, READWRITE = 3 };
enum { NO_BLOCK = 1, OP_MULTI = 1, OPT_MULTI_RECV = 1, ADDR_FIREWALL = 1 };
enum { MEM_HOST, MEM_CUDA };

struct address;
struct operation;
struct memory;

struct init_info {
    const char *ip_subnet, *auth_key;
    size_t max_unexpected_size, max_expected_size;
    uint8_t progress_mode;
    int addr_format;
    uint8_t max_contexts, thread_mode;
    bool request_mem_device;
    int traffic_class;
};

struct info {
    char *protocol_name, *host_name;
    struct init_info init;
};

struct table;

struct class {
    const struct table *ops;
    void *plugin_class;
    char *protocol_name;
    uint8_t progress_mode;
    bool listen;
};

/* The plugin's part of a context comes first. */
struct context;

struct segment {
    void *base;
    size_t len;
};

struct protocol {
    struct protocol *next;
    char *class_name, *protocol_name, *device_name;
};

struct callback_info {
    struct {
        size_t size;
        struct address *source;
        uint32_t tag;
        void *start;
        bool last;
    } received;
    void *arg;
    enum kind kind;
    int ret;
};

typedef void callback(const struct callback_info *);

struct completion {
    struct callback_info info;
    callback *call;
    void (*plugin_call)(void *);
    void *plugin_arg;
    struct completion *next;
};

typedef struct class class_t;
typedef struct context context_t;
typedef struct address address_t;
typedef struct operation op_t;
typedef struct memory memory_t;

struct table {
    const char *class_name;
    int (*get_protocol_info)(const struct info *, struct protocol **);
    bool (*check_protocol)(const char *);
    int (*initialize)(class_t *, const struct info *, bool listen);
    int (*finalize)(class_t *);
    void (*cleanup)(void);
    bool (*has_opt_feature)(class_t *, unsigned long);
    int (*context_create)(class_t *, context_t *, void **, uint8_t id);
    int (*context_destroy)(class_t *, void *);
    op_t *(*op_create)(class_t *, unsigned long);
    void (*op_destroy)(class_t *, op_t *);
    int (*addr_lookup)(class_t *, const char *, address_t **);
    void (*addr_free)(class_t *, address_t *);
    int (*addr_set_remove)(class_t *, address_t *);
    int (*addr_self)(class_t *, address_t **);
    int (*addr_dup)(class_t *, address_t *, address_t **);
    bool (*addr_cmp)(class_t *, address_t *, address_t *);
    bool (*addr_is_self)(class_t *, address_t *);
    int (*addr_to_string)(class_t *, char *, size_t *, address_t *);
    size_t (*addr_get_serialize_size)(class_t *, address_t *);
    int (*addr_serialize)(class_t *, void *, size_t, address_t *);
    int (*addr_deserialize)(class_t *, address_t **, const void *, size_t, uint64_t flags);
    size_t (*msg_get_max_unexpected_size)(const class_t *);
    size_t (*msg_get_max_expected_size)(const class_t *);
    size_t (*msg_get_unexpected_header_size)(const class_t *);
    size_t (*msg_get_expected_header_size)(const class_t *);
    uint32_t (*msg_get_max_tag)(const class_t *);
    void *(*msg_buf_alloc)(class_t *, size_t, unsigned long, void **plugin_data);
    void (*msg_buf_free)(class_t *, void *, void *plugin_data);
    int (*msg_init_unexpected)(class_t *, void *, size_t);
    int (*msg_send_unexpected)(class_t *, context_t *, callback *, void *, const void *, size_t, void *, address_t *,
                               uint8_t, uint32_t tag, op_t *);
    int (*msg_recv_unexpected)(class_t *, context_t *, callback *, void *, void *, size_t, void *, op_t *);
    int (*msg_multi_recv_unexpected)(class_t *, context_t *, callback *, void *, void *, size_t, void *, op_t *);
    int (*msg_init_expected)(class_t *, void *, size_t);
    int (*msg_send_expected)(class_t *, context_t *, callback *, void *, const void *, size_t, void *, address_t *,
                             uint8_t, uint32_t tag, op_t *);
    int (*msg_recv_expected)(class_t *, context_t *, callback *, void *, void *, size_t, void *, address_t *, uint8_t,
                             uint32_t tag, op_t *);
    int (*mem_handle_create)(class_t *, void *, size_t, unsigned long rights, memory_t **);
    int (*mem_handle_create_segments)(class_t *, struct segment *, size_t, unsigned long rights, memory_t **);
    void (*mem_handle_free)(class_t *, memory_t *);
    size_t (*mem_handle_get_max_segments)(const class_t *);
    int (*mem_register)(class_t *, memory_t *, int kind, uint64_t device);
    int (*mem_deregister)(class_t *, memory_t *);
    size_t (*mem_handle_get_serialize_size)(class_t *, memory_t *);
    int (*mem_handle_serialize)(class_t *, void *, size_t, memory_t *);
    int (*mem_handle_deserialize)(class_t *, memory_t **, const void *, size_t);
    int (*put)(class_t *, context_t *, callback *, void *, memory_t *, uint64_t, memory_t *, uint64_t, size_t,
               address_t *, uint8_t, op_t *);
    int (*get)(class_t *, context_t *, callback *, void *, memory_t *, uint64_t, memory_t *, uint64_t, size_t,
               address_t *, uint8_t, op_t *);
    int (*poll_get_fd)(class_t *, context_t *);
    bool (*poll_try_wait)(class_t *, context_t *);
    int (*poll)(class_t *, context_t *, unsigned *);
    int (*poll_wait)(class_t *, context_t *, unsigned timeout_ms, unsigned *);
    int (*cancel)(class_t *, context_t *, op_t *);
};

#endif
