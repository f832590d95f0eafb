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

/* Private names of GASNet's that clients use all the same. The release is to be made text of. */
#define GASNETI_RELEASE_VERSION 2025.8.0
#define GASNETI_BUILD_ID "Conduit-0.1"
#define GASNETI_EX_SPEC_VERSION_MAJOR GEX_SPEC_VERSION_MAJOR
#define GASNETI_EX_SPEC_VERSION_MINOR GEX_SPEC_VERSION_MINOR
#define GASNETI_SPEC_VERSION_MAJOR GASNET_SPEC_VERSION_MAJOR
#define GASNETI_SPEC_VERSION_MINOR GASNET_SPEC_VERSION_MINOR
#define GASNETI_TOOLS_SPEC_VERSION_MAJOR GASNETT_SPEC_VERSION_MAJOR
#define GASNETI_TOOLS_SPEC_VERSION_MINOR GASNETT_SPEC_VERSION_MINOR

#endif
