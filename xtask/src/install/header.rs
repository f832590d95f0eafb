//! `include/<c>-conduit/gasnet_core.h`: the folder by which a program chooses its conduit says which it is.
//!
//! Build systems look for this header to see whether a conduit is there, and some pass on the include folders only, without
//! `GASNET_DEFINES`.

use super::Conduit;
use super::variant::Kind;

pub(super) fn text(conduit: Conduit, kind: Kind) -> String {
    let network = conduit.to_string().to_uppercase();
    let checks = kind.define().trim_start_matches("-D");
    format!(
        "\
/* The conduit of programs that are compiled with this folder among their include folders: {conduit}. */
#ifndef CONDUIT_GASNET_CORE_H
#define CONDUIT_GASNET_CORE_H

#ifndef GASNET_CONDUIT_{network}
#define GASNET_CONDUIT_{network} 1
#endif

/* The library beside it is {kind}. */
#if !defined(GASNET_DEBUG) && !defined(GASNET_NDEBUG)
#define {checks} 1
#endif

#endif
"
    )
}
