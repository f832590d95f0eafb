/* The text of lists and flags. The flags stand for those of gasnetex.h, which this program doesn't
 * include. */
#include <gasnet_tools.h>

#include "programs.h"

enum { GEX_DT_I32 = 1, GEX_DT_U32 = 2, GEX_DT_I64 = 4, GEX_DT_U64 = 8, GEX_DT_FLT = 16, GEX_DT_DBL = 32, GEX_DT_USER = 64 };
enum { GEX_TI_SRCRANK = 1, GEX_TI_EP = 2, GEX_TI_ENTRY = 4, GEX_TI_IS_REQ = 8, GEX_TI_IS_LONG = 16 };
enum {
    GEX_OP_AND = 1 << 0,    GEX_OP_OR = 1 << 1,    GEX_OP_XOR = 1 << 2,    GEX_OP_ADD = 1 << 3,   GEX_OP_SUB = 1 << 4,
    GEX_OP_MULT = 1 << 5,   GEX_OP_MIN = 1 << 6,   GEX_OP_MAX = 1 << 7,    GEX_OP_INC = 1 << 8,   GEX_OP_DEC = 1 << 9,
    GEX_OP_SET = 1 << 10,   GEX_OP_CAS = 1 << 11,  GEX_OP_FAND = 1 << 12,  GEX_OP_FOR = 1 << 13,  GEX_OP_FXOR = 1 << 14,
    GEX_OP_FADD = 1 << 15,  GEX_OP_FSUB = 1 << 16, GEX_OP_FMULT = 1 << 17, GEX_OP_FMIN = 1 << 18, GEX_OP_FMAX = 1 << 19,
    GEX_OP_FINC = 1 << 20,  GEX_OP_FDEC = 1 << 21, GEX_OP_SWAP = 1 << 22,  GEX_OP_FCAS = 1 << 23, GEX_OP_GET = 1 << 24,
    GEX_OP_USER = 1 << 25,  GEX_OP_USER_NC = 1 << 26
};

#define CHECK_FLAGS(function, flags, text) \
    do { \
        char buffer[256]; \
        const size_t size = function(NULL, flags); \
        CHECK(size == strlen(text) + 1 && size <= sizeof(buffer)); \
        CHECK(function(buffer, flags) == size); \
        CHECK(strcmp(buffer, text) == 0); \
    } while (0)

int test_formats(int argc, char **argv) {
    const struct {
        const void *address;
        size_t length;
    } pieces[2] = { { (void *)0x1000, 16 }, { (void *)0x2000, 32 } };
    void *const addresses[2] = { (void *)0x1000, (void *)0x2000 };
    const ptrdiff_t strides[2] = { 8, -64 };
    const size_t counts[2] = { 3, 5 };
    char buffer[2048];
    (void)argc, (void)argv;

    CHECK(gasnett_format_memveclist_bufsz(2) <= sizeof(buffer));
    gasnett_format_memveclist(buffer, 2, pieces);
    CHECK(strcmp(buffer, "2 pieces, 48 bytes in 0x1000...0x201f: [{0x1000, 16}, {0x2000, 32}]") == 0);
    CHECK(gasnett_format_addrlist_bufsz(2) <= sizeof(buffer));
    gasnett_format_addrlist(buffer, 2, addresses, 24);
    CHECK(strcmp(buffer, "2 pieces of 24 bytes in 0x1000...0x2017: [0x1000, 0x2000]") == 0);
    CHECK(gasnett_format_strides_bufsz(2) <= sizeof(buffer));
    gasnett_format_strides(buffer, 2, strides);
    CHECK(strcmp(buffer, "[8, -64]") == 0);
    CHECK(gasnett_format_putsgets_bufsz(2) <= sizeof(buffer));
    CHECK(gasnett_format_putsgets(buffer, NULL, NULL, 3, addresses[0], strides, addresses[1], strides, 4, counts, 2) == 60);
    CHECK(strstr(buffer, "rank 3") && strstr(buffer, "15 elements of 4 bytes") && strstr(buffer, "[3, 5]"));

    CHECK(gasnett_format_putvgetv_bufsz(2, 1) <= sizeof(buffer));
    CHECK(gasnett_format_putvgetv(buffer, NULL, 3, 2, pieces, 1, pieces + 1) == 48);
    CHECK(strcmp(buffer, "team 0x0 rank 3: 48 bytes\n"
                         "to 2 pieces, 48 bytes in 0x1000...0x201f: [{0x1000, 16}, {0x2000, 32}]\n"
                         "from 1 pieces, 32 bytes in 0x2000...0x201f: [{0x2000, 32}]") == 0);
    CHECK(gasnett_format_putigeti_bufsz(2, 1) <= sizeof(buffer));
    CHECK(gasnett_format_putigeti(buffer, pieces, 3, 1, addresses, 16, 2, addresses, 8) == 16);
    CHECK(strstr(buffer, " rank 3: 16 bytes\nto 1 pieces of 16 bytes in 0x1000...0x100f: [0x1000]\n"
                         "from 2 pieces of 8 bytes in 0x1000...0x2007: [0x1000, 0x2000]") != NULL);
    /* Empty lists and empty pieces have no bounds. */
    CHECK(gasnett_format_putvgetv(buffer, NULL, 0, 0, NULL, 0, NULL) == 0);
    CHECK(strcmp(buffer, "team 0x0 rank 0: 0 bytes\nto 0 pieces, 0 bytes: []\nfrom 0 pieces, 0 bytes: []") == 0);
    gasnett_format_addrlist(buffer, 1, addresses, 0);
    CHECK(strcmp(buffer, "1 pieces of 0 bytes: [0x1000]") == 0);
    /* The sizes must suffice for the longest items. */
    {
        struct {
            const void *address;
            size_t length;
        } widest[8];
        char *text;
        size_t count, i;
        for (i = 0; i < 8; ++i) {
            widest[i].address = (const void *)(UINTPTR_MAX - i);
            widest[i].length = SIZE_MAX;
        }
        for (count = 0; count <= 8; ++count) {
            const size_t room = gasnett_format_putvgetv_bufsz(count, 8 - count);
            text = (char *)malloc(room + 1);
            text[room] = 'x';
            CHECK(gasnett_format_putvgetv(text, widest, UINT32_MAX, count, widest, 8 - count, widest) == (count ? SIZE_MAX : 0));
            CHECK(text[room] == 'x' && strlen(text) < room && text[strlen(text) - 1] == ']');
            free(text);
        }
    }

    CHECK_FLAGS(gasnett_format_dt, GEX_DT_I32 | GEX_DT_USER, "I32|USER");
    CHECK_FLAGS(gasnett_format_ti, GEX_TI_SRCRANK | GEX_TI_IS_LONG, "SRCRANK|IS_LONG");
    CHECK_FLAGS(gasnett_format_op, GEX_OP_AND | GEX_OP_USER_NC, "AND|USER_NC");
    CHECK_FLAGS(gasnett_format_op, GEX_OP_FCAS, "FCAS");
    CHECK_FLAGS(gasnett_format_op, 0, "0x0");
    return 0;
}
