//! The make fragments `include/<c>-conduit/<c>-<mode>.mak` and `include/gasnet_tools-<mode>.mak`.

use super::settings::Variables;

/// The variables to which flags from make's command line are appended, and the variables in which
/// users pass these flags, as GASNet's README documents.
const MANUAL: [(&str, &str); 7] = [
    ("GASNET_DEFINES", "MANUAL_DEFINES"),
    ("GASNET_CFLAGS", "MANUAL_CFLAGS"),
    ("GASNET_CXXFLAGS", "MANUAL_CXXFLAGS"),
    ("GASNET_LDFLAGS", "MANUAL_LDFLAGS"),
    ("GASNET_LIBS", "MANUAL_LIBS"),
    ("GASNETTOOLS_CFLAGS", "MANUAL_CFLAGS"),
    ("GASNETTOOLS_CXXFLAGS", "MANUAL_CXXFLAGS"),
];

/// Returns the text of a fragment that lies `depth` folders below the prefix.
pub(super) fn text(what: &str, depth: usize, variables: &Variables) -> String {
    let up = vec![".."; depth].join("/");
    let mut text = format!(
        "\
# {what}, for makefiles: include this file and use the variables below.
# The prefix follows from the location of this file, so it may be moved. Programs are linked with the static library, unless
# GASNET_SHARED is set: in the makefile before the include, or as make GASNET_SHARED=1.

CONDUIT_PREFIX := $(abspath $(dir $(lastword $(MAKEFILE_LIST)))/{up})
CONDUIT_INCLUDEDIR := $(CONDUIT_PREFIX)/include
ifdef GASNET_SHARED
CONDUIT_LIBDIR := $(CONDUIT_PREFIX)/lib/shared
CONDUIT_RPATH := -Wl,-rpath,$(CONDUIT_LIBDIR)
else
CONDUIT_LIBDIR := $(CONDUIT_PREFIX)/lib
CONDUIT_RPATH :=
endif

"
    );
    for (name, value) in variables {
        text += name;
        text += " =";
        if !value.is_empty() {
            text += " ";
            text += value;
        }
        if let Some((_, manual)) = MANUAL.iter().find(|(ours, _)| ours == name) {
            text += &format!(" $({manual})");
        }
        text += "\n";
    }
    text
}
