/* A library that loads the plugin as Mercury does. It has the functions that the plugin looks up,
 * and functions that call the plugin. */
#ifndef CONDUIT_TEST_NA_LIBRARY_H
#define CONDUIT_TEST_NA_LIBRARY_H

#include "table.h"
#include "../check.h"

/* Returns the function table of the plugin in `file`. */
const struct table *load(const char *file);

/* The major version number that the library reports. */
extern unsigned version_major;
/* The last line of the log. A program empties it to detect the next line. */
extern char logged[1024];

struct context {
    void *plugin_context;
    struct completion *first, **last;
};

/* A class with one context. */
struct side {
    const struct table *ops;
    class_t class;
    context_t context;
    address_t *self;
    char name[512];
};

/* Returns the options of a user who sets none. */
struct init_info defaults(void);
/* Returns the code with which the plugin answers an info string. */
int initialize(class_t *, const struct table *, char *protocol, char *host, bool listen, struct init_info);
/* Opens a class, and requires that this succeeds. */
void open_side(struct side *, const struct table *, char *protocol, bool listen, struct init_info);
void close_side(struct side *);

void create_context(class_t *, context_t *, uint8_t id);
/* Runs the callbacks of completed operations. Returns the number of callbacks. */
unsigned trigger(context_t *);

/* The result of an operation, and the number of times that its callback has run. */
struct result {
    int calls;
    struct callback_info info;
};
/* A callback that stores the operation's result. Its argument points to the struct result. */
void note(const struct callback_info *);
/* Makes progress on both sides until the callback has run `calls` times. */
void wait_for(struct side *, struct side *, struct result *, int calls);
/* Requires that `call` returns `code` and logs a line that contains `text`. */
#define REFUSED(call, code, text) \
    (logged[0] = 0, CHECK((call) == (code)), strstr(logged, text) ? (void)0 : refused_otherwise(__FILE__, __LINE__, text))
void refused_otherwise(const char *file, int line, const char *text);

#endif
