/* A program of nothing, for headers that are looked at by themselves. */
typedef int conduit_test_nothing;
