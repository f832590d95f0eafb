#include "library.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

unsigned version_major = 6;
char logged[1024];

/* The functions of Mercury that the plugin looks up. */

void NA_Version_get(unsigned *major, unsigned *minor, unsigned *patch);
void na_cb_completion_add(context_t *context, struct completion *completion);

void NA_Version_get(unsigned *major, unsigned *minor, unsigned *patch) {
    if (major) *major = version_major;
    if (minor) *minor = 0;
    if (patch) *patch = 0;
}

void na_cb_completion_add(context_t *context, struct completion *completion) {
    completion->next = NULL;
    *context->last = completion;
    context->last = &completion->next;
}

struct outlet {
    const char *name;
    int state, level;
    void *others[4];
};

#define OUTLET(name) struct outlet na_##name##_log_outlet_g = {#name, 0, 3, {0}}
extern struct outlet na_cls_log_outlet_g, na_ctx_log_outlet_g, na_op_log_outlet_g, na_addr_log_outlet_g,
    na_msg_log_outlet_g, na_mem_log_outlet_g, na_rma_log_outlet_g, na_poll_log_outlet_g;
OUTLET(cls);
OUTLET(ctx);
OUTLET(op);
OUTLET(addr);
OUTLET(msg);
OUTLET(mem);
OUTLET(rma);
OUTLET(poll);

void hg_log_write(struct outlet *outlet, int level, const char *module, const char *file, unsigned line,
                  const char *function, bool no_return, const char *format, ...);

void hg_log_write(struct outlet *outlet, int level, const char *module, const char *file, unsigned line,
                  const char *function, bool no_return, const char *format, ...) {
    va_list arguments;
    CHECK(level <= outlet->level && !module && file[0] && line > 0 && function[0] && !no_return);
    va_start(arguments, format);
    vsnprintf(logged, sizeof logged, format, arguments);
    va_end(arguments);
    fprintf(stderr, "# %s %s(): %s\n", outlet->name, function, logged);
}

/* The functions that call the plugin. */

const struct table *load(const char *file) {
    void *library = dlopen(file, RTLD_LAZY);
    const struct table *ops;
    if (!library) fprintf(stderr, "%s\n", dlerror());
    CHECK(library);
    ops = dlsym(library, "na_conduit_class_ops_g");
    CHECK(ops);
    return ops;
}

struct init_info defaults(void) {
    struct init_info init = {0};
    init.max_contexts = 1;
    return init;
}

int initialize(class_t *class, const struct table *ops, char *protocol, char *host, bool listen,
               struct init_info init) {
    struct info info = {protocol, host, init};
    int result;
    memset(class, 0, sizeof *class);
    class->ops = ops;
    class->protocol_name = protocol;
    class->progress_mode = init.progress_mode;
    /* This is Mercury's default level, which logs only fatal errors. */
    na_cls_log_outlet_g.level = 1;
    result = ops->initialize(class, &info, listen);
    na_cls_log_outlet_g.level = 3;
    return result;
}

void open_side(struct side *side, const struct table *ops, char *protocol, bool listen, struct init_info init) {
    size_t size = sizeof side->name;
    side->ops = ops;
    CHECK(initialize(&side->class, ops, protocol, NULL, listen, init) == NA_SUCCESS);
    create_context(&side->class, &side->context, 0);
    CHECK(ops->addr_self(&side->class, &side->self) == NA_SUCCESS);
    CHECK(ops->addr_to_string(&side->class, side->name, &size, side->self) == NA_SUCCESS);
}

void close_side(struct side *side) {
    side->ops->addr_free(&side->class, side->self);
    CHECK(side->ops->context_destroy(&side->class, side->context.plugin_context) == NA_SUCCESS);
    CHECK(side->ops->finalize(&side->class) == NA_SUCCESS);
}

void create_context(class_t *class, context_t *context, uint8_t id) {
    context->plugin_context = NULL;
    context->first = NULL;
    context->last = &context->first;
    CHECK(class->ops->context_create(class, context, &context->plugin_context, id) == NA_SUCCESS);
}

unsigned trigger(context_t *context) {
    unsigned count = 0;
    while (context->first) {
        /* The completion is copied, because the plugin's callback may free or reuse it. */
        struct completion completion = *context->first;
        context->first = completion.next;
        if (!context->first) context->last = &context->first;
        if (completion.plugin_call) completion.plugin_call(completion.plugin_arg);
        if (completion.call) completion.call(&completion.info);
        count++;
    }
    return count;
}

void note(const struct callback_info *info) {
    struct result *result = info->arg;
    result->calls++;
    result->info = *info;
}

static void progress(struct side *side) {
    CHECK(side->ops->poll(&side->class, &side->context, NULL) == NA_SUCCESS);
    trigger(&side->context);
}

void wait_for(struct side *one, struct side *other, struct result *result, int calls) {
    while (result->calls < calls) {
        progress(one);
        progress(other);
    }
    CHECK(result->calls == calls);
}

void refused_otherwise(const char *file, int line, const char *text) {
    printf("%s:%d: the log has \"%s\", expected \"%s\"\n", file, line, logged, text);
    fflush(stdout);
    exit(1);
}
