/* An empty program. Compiling it with a header included shows that the header compiles by itself.
 * */
typedef int conduit_test_nothing;
