/* A library that loads the plugin as Mercury does, as far as a plugin sees it: its functions, and what calls them. */
#ifndef CONDUIT_TEST_NA_LIBRARY_H
#define CONDUIT_TEST_NA_LIBRARY_H

#include "table.h"
#include "../check.h"

/* The table of the plugin in a file. */
const struct table *load(const char *file);

/* The version that the library says to have. */
extern unsigned version_major;
/* The last line of the log; empty it to see whether there is another one. */
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

/* Options as a user has them who sets none. */
struct init_info defaults(void);
/* What the plugin answers to an info string. */
int initialize(class_t *, const struct table *, char *protocol, char *host, bool listen, struct init_info);
/* A class that has to come about. */
void open_side(struct side *, const struct table *, char *protocol, bool listen, struct init_info);
void close_side(struct side *);

void create_context(class_t *, context_t *, uint8_t id);
/* Calls what has ended; returns how many. */
unsigned trigger(context_t *);

/* What has come of an operation. */
struct result {
    int calls;
    struct callback_info info;
};
/* Notes it; the argument is the result. */
void note(const struct callback_info *);
/* Makes progress on both sides until it has ended so often. */
void wait_for(struct side *, struct side *, struct result *, int calls);
/* The call is refused with this code, and a line in the log that has this text. */
#define REFUSED(call, code, text) \
    (logged[0] = 0, CHECK((call) == (code)), strstr(logged, text) ? (void)0 : refused_otherwise(__FILE__, __LINE__, text))
void refused_otherwise(const char *file, int line, const char *text);

#endif
