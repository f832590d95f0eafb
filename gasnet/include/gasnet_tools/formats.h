/* Lists and flags formatted for messages: for each, there is a function that returns the
 * required size of the buffer and one that writes to the buffer.
 *
 * The layouts are those of gasnetex.h: a piece of a vector is { address, length }. Only the last
 * three macros need that header, for its constants. */
#ifndef CONDUIT_TOOLS_FORMATS_H
#define CONDUIT_TOOLS_FORMATS_H

#include "basics.h"

GASNETT_BEGIN_EXTERNC

/* Format pieces of memory, each as { address, length }, with their total size and the addresses
 * of their lowest and highest byte. */
extern size_t gasnett_format_memveclist_bufsz(size_t count);
extern void gasnett_format_memveclist(char *buf, size_t count, const void *list);
/* Format the addresses of pieces of equal length. */
extern size_t gasnett_format_addrlist_bufsz(size_t count);
extern void gasnett_format_addrlist(char *buf, size_t count, void *const *list, size_t len);
/* Format strides, innermost first. */
extern size_t gasnett_format_strides_bufsz(size_t count);
extern void gasnett_format_strides(char *buf, size_t count, const ptrdiff_t *list);
/* Format transfers of pieces, of pieces of equal length on each side, and of strided arrays, and
 * return the number of data bytes. `tm` is printed as an address. */
extern size_t gasnett_format_putvgetv_bufsz(size_t dstcount, size_t srccount);
extern size_t gasnett_format_putvgetv(char *buf, const void *tm, uint32_t rank, size_t dstcount, const void *dstlist,
                                      size_t srccount, const void *srclist);
extern size_t gasnett_format_putigeti_bufsz(size_t dstcount, size_t srccount);
extern size_t gasnett_format_putigeti(char *buf, const void *tm, uint32_t rank, size_t dstcount, void *const *dstlist,
                                      size_t dstlen, size_t srccount, void *const *srclist, size_t srclen);
extern size_t gasnett_format_putsgets_bufsz(size_t stridelevels);
extern size_t gasnett_format_putsgets(char *buf, void *unused, const void *tm, uint32_t rank, const void *dstaddr,
                                      const ptrdiff_t *dststrides, const void *srcaddr, const ptrdiff_t *srcstrides,
                                      size_t elemsz, const size_t *count, size_t stridelevels);

/* Writes the names of the `flags` that are set in `value`, joined by |, and returns the size
 * including the final zero. `names` holds `count` consecutive zero-terminated names. A null
 * buffer is not written. */
extern size_t conduit_tools_format_flags(char *buf, uint64_t value, const uint64_t *flags, const char *names, size_t count);

GASNETT_END_EXTERNC

#define CONDUIT_FORMAT_FLAGS(buf, value, flags, names) \
    conduit_tools_format_flags(buf, value, flags, names, sizeof(flags) / sizeof((flags)[0]))

/* Data types, operations and token information of gasnetex.h. The functions are defined in
 * macros, because the constants may be defined after this header. */
#define gasnett_format_dt(buf, dt) \
    conduit_tools_format_dt((buf), (uint64_t)(dt), (uint64_t)GEX_DT_I32, (uint64_t)GEX_DT_U32, (uint64_t)GEX_DT_I64, \
                            (uint64_t)GEX_DT_U64, (uint64_t)GEX_DT_FLT, (uint64_t)GEX_DT_DBL, (uint64_t)GEX_DT_USER)
#define gasnett_format_ti(buf, ti) \
    conduit_tools_format_ti((buf), (uint64_t)(ti), (uint64_t)GEX_TI_SRCRANK, (uint64_t)GEX_TI_EP, (uint64_t)GEX_TI_ENTRY, \
                            (uint64_t)GEX_TI_IS_REQ, (uint64_t)GEX_TI_IS_LONG)
#define gasnett_format_op(buf, op) \
    (conduit_tools_format_op((buf), (uint64_t)(op), \
        (uint64_t)GEX_OP_AND, (uint64_t)GEX_OP_OR, (uint64_t)GEX_OP_XOR, (uint64_t)GEX_OP_ADD, (uint64_t)GEX_OP_SUB, \
        (uint64_t)GEX_OP_MULT, (uint64_t)GEX_OP_MIN, (uint64_t)GEX_OP_MAX, (uint64_t)GEX_OP_INC, (uint64_t)GEX_OP_DEC, \
        (uint64_t)GEX_OP_SET, (uint64_t)GEX_OP_CAS, (uint64_t)GEX_OP_FAND, (uint64_t)GEX_OP_FOR, (uint64_t)GEX_OP_FXOR, \
        (uint64_t)GEX_OP_FADD, (uint64_t)GEX_OP_FSUB, (uint64_t)GEX_OP_FMULT, (uint64_t)GEX_OP_FMIN, \
        (uint64_t)GEX_OP_FMAX, (uint64_t)GEX_OP_FINC, (uint64_t)GEX_OP_FDEC, (uint64_t)GEX_OP_SWAP, \
        (uint64_t)GEX_OP_FCAS, (uint64_t)GEX_OP_GET, (uint64_t)GEX_OP_USER, (uint64_t)GEX_OP_USER_NC))

static __inline__ __attribute__((__unused__)) size_t
conduit_tools_format_dt(char *buf, uint64_t value, uint64_t i32, uint64_t u32, uint64_t i64, uint64_t u64, uint64_t flt,
                        uint64_t dbl, uint64_t user) {
    const uint64_t flags[] = { i32, u32, i64, u64, flt, dbl, user };
    return CONDUIT_FORMAT_FLAGS(buf, value, flags, "I32\0U32\0I64\0U64\0FLT\0DBL\0USER");
}
static __inline__ __attribute__((__unused__)) size_t
conduit_tools_format_ti(char *buf, uint64_t value, uint64_t srcrank, uint64_t ep, uint64_t entry, uint64_t is_req,
                        uint64_t is_long) {
    const uint64_t flags[] = { srcrank, ep, entry, is_req, is_long };
    return CONDUIT_FORMAT_FLAGS(buf, value, flags, "SRCRANK\0EP\0ENTRY\0IS_REQ\0IS_LONG");
}
static __inline__ __attribute__((__unused__)) size_t
conduit_tools_format_op(char *buf, uint64_t value,
                        uint64_t op0, uint64_t op1, uint64_t op2, uint64_t op3, uint64_t op4, uint64_t op5, uint64_t op6,
                        uint64_t op7, uint64_t op8, uint64_t op9, uint64_t op10, uint64_t op11, uint64_t op12,
                        uint64_t op13, uint64_t op14, uint64_t op15, uint64_t op16, uint64_t op17, uint64_t op18,
                        uint64_t op19, uint64_t op20, uint64_t op21, uint64_t op22, uint64_t op23, uint64_t op24,
                        uint64_t op25, uint64_t op26) {
    const uint64_t flags[] = { op0, op1, op2, op3, op4, op5, op6, op7, op8, op9, op10, op11, op12, op13, op14, op15, op16,
                               op17, op18, op19, op20, op21, op22, op23, op24, op25, op26 };
    return CONDUIT_FORMAT_FLAGS(buf, value, flags,
        "AND\0OR\0XOR\0ADD\0SUB\0MULT\0MIN\0MAX\0INC\0DEC\0SET\0CAS\0FAND\0FOR\0FXOR\0FADD\0FSUB\0FMULT\0FMIN\0FMAX\0FINC\0"
        "FDEC\0SWAP\0FCAS\0GET\0USER\0USER_NC");
}

#endif
