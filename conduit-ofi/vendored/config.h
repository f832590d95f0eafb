/* What libfabric's configure would find out on Linux with gcc or clang, for the vendored build: no optional library, no
 * accelerator, no loading of providers from files, no monitor of memory (none of the providers here needs one). */

#define PACKAGE "libfabric"
#define PACKAGE_VERSION "1.22.0"
#define VERSION PACKAGE_VERSION
#define PACKAGE_STRING PACKAGE " " PACKAGE_VERSION
#define BUILD_ID ""
#define SYSCONFDIR "/etc"
#define RDMADIR "rdma"
#define PROVDLDIR ""

#define HAVE_TCP 1
#define HAVE_SHM 1
#define HAVE_UDP 1
#define HAVE_RXM 1
#define HAVE_RXD 1

#define HAVE_ATOMICS 1
#define HAVE_BUILTIN_ATOMICS 1
#define HAVE_BUILTIN_MM_ATOMICS 1
#define HAVE_CLOCK_GETTIME 1
#define HAVE_EPOLL 1
#define HAVE_ETHTOOL 1
#define HAVE_DECL_ETHTOOL_CMD_SPEED 1
#define HAVE_DECL_SPEED_UNKNOWN 1
#define HAVE_GETIFADDRS 1
#define PT_LOCK_SPIN 1

/* Plain names instead of versions of symbols: the library is linked into one program. */
#define HAVE_ALIAS_ATTRIBUTE 0
#define HAVE_SYMVER_SUPPORT 0
