//! The header `include/<c>-conduit/gasnet_core.h`, which defines the conduit that its folder stands
//! for. Programs choose their conduit by this folder.
//!
//! Build systems look for this header to detect a conduit, and some pass only the include folders
//! to the compiler, without `GASNET_DEFINES`.

use clap::ValueEnum;

use super::Conduit;
use super::variant::VariantKind;

pub(super) fn text(conduit: Conduit, kind: VariantKind) -> String {
    let define =
        |conduit: &Conduit| format!("GASNET_CONDUIT_{}", conduit.to_string().to_uppercase());
    let unsaid: Vec<_> = Conduit::value_variants()
        .iter()
        .map(|conduit| format!("!defined({})", define(conduit)))
        .collect();
    let (unsaid, network) = (unsaid.join(" && "), define(&conduit));
    let checks = kind.define().trim_start_matches("-D");
    format!(
        "\
/* For programs compiled with this folder in their include path: the conduit is {conduit}, and
 * the library beside it is {kind}, unless the program defines otherwise. */
#ifndef CONDUIT_GASNET_CORE_H
#define CONDUIT_GASNET_CORE_H

#if {unsaid}
#define {network} 1
#endif

#if !defined(GASNET_DEBUG) && !defined(GASNET_NDEBUG)
#define {checks} 1
#endif

#endif
"
    )
}
