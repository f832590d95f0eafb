/* An empty program, to compile headers by themselves. */
typedef int conduit_test_nothing;
