/* Versions of this installation of Conduit's GASNet interface, which clients and build systems
 * look for.
 *
 * Build systems read the release from this file as text, so each part stays on a line of its
 * own. */
#ifndef CONDUIT_GASNET_CONFIG_H
#define CONDUIT_GASNET_CONFIG_H

/* The GASNet-EX release whose interface is provided. */
#define GASNET_RELEASE_VERSION_MAJOR 2025
#define GASNET_RELEASE_VERSION_MINOR 8
#define GASNET_RELEASE_VERSION_PATCH 0

/* Specification versions: GASNet-EX, GASNet-1, the tools. */
#define GEX_SPEC_VERSION_MAJOR 0
#define GEX_SPEC_VERSION_MINOR 19
#define GASNET_SPEC_VERSION_MAJOR 1
#define GASNET_SPEC_VERSION_MINOR 8
#define GASNETT_SPEC_VERSION_MAJOR 1
#define GASNETT_SPEC_VERSION_MINOR 20

/* Internal GASNet names that clients use nevertheless. GASNETI_RELEASE_VERSION is meant to be
 * stringified. */
#define GASNETI_RELEASE_VERSION 2025.8.0
#define GASNETI_BUILD_ID "Conduit-0.1"
#define GASNETI_EX_SPEC_VERSION_MAJOR GEX_SPEC_VERSION_MAJOR
#define GASNETI_EX_SPEC_VERSION_MINOR GEX_SPEC_VERSION_MINOR
#define GASNETI_SPEC_VERSION_MAJOR GASNET_SPEC_VERSION_MAJOR
#define GASNETI_SPEC_VERSION_MINOR GASNET_SPEC_VERSION_MINOR
#define GASNETI_TOOLS_SPEC_VERSION_MAJOR GASNETT_SPEC_VERSION_MAJOR
#define GASNETI_TOOLS_SPEC_VERSION_MINOR GASNETT_SPEC_VERSION_MINOR

#endif
