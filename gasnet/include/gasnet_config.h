/* What this installation of Conduit's GASNet interface is: versions that clients and build systems look for.
 *
 * Build systems read the release out of this file as text, so each part stays on a line of its own. */
#ifndef CONDUIT_GASNET_CONFIG_H
#define CONDUIT_GASNET_CONFIG_H

/* The release of GASNet-EX whose interface this is. */
#define GASNET_RELEASE_VERSION_MAJOR 2025
#define GASNET_RELEASE_VERSION_MINOR 8
#define GASNET_RELEASE_VERSION_PATCH 0

/* Specifications: GASNet-EX, GASNet-1, the tools. */
#define GEX_SPEC_VERSION_MAJOR 0
#define GEX_SPEC_VERSION_MINOR 19
#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 20

#endif
