/* Runs the program that the first argument names, with the remaining arguments. */
#include <gasnet_tools.h>

#include "programs.h"

#define PROGRAM(name) { #name, test_##name }

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} programs[] = {
    PROGRAM(annotations), PROGRAM(atomics), PROGRAM(basics),   PROGRAM(bytes),  PROGRAM(environment),
    PROGRAM(failures),    PROGRAM(fences),  PROGRAM(formats),  PROGRAM(locks),  PROGRAM(memory),
    PROGRAM(platform),    PROGRAM(system),  PROGRAM(threadkeys), PROGRAM(timers), PROGRAM(tracing),
};

int main(int argc, char **argv) {
    size_t i;
    for (i = 0; argc > 1 && i < sizeof(programs) / sizeof(programs[0]); ++i) {
        if (strcmp(programs[i].name, argv[1]) == 0) return programs[i].run(argc - 1, argv + 1);
    }
    printf("unknown program\n");
    return 2;
}
