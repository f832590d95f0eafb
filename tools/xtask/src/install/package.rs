//! The pkg-config files `gasnet-<c>-<mode>.pc` and `gasnet_tools-<mode>.pc`. Those in
//! `lib/pkgconfig` are for the static libraries, and those in `lib/shared/pkgconfig` for the shared
//! ones.

use super::settings::Variables;

/// The file of a pkg-config package.
pub(super) struct Package<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) version: &'a str,
    /// The common prefix of the variables' names, `GASNET` or `GASNETTOOLS`.
    pub(super) family: &'a str,
    pub(super) variables: &'a Variables,
    pub(super) shared: bool,
}

impl Package<'_> {
    /// Returns the file's text. The file derives the prefix from its own location, so the
    /// installation may be moved.
    pub(super) fn text(&self) -> String {
        let Package {
            name,
            description,
            version,
            family,
            ..
        } = self;
        let (up, lib) = if self.shared {
            ("../../..", "lib/shared")
        } else {
            ("../..", "lib")
        };
        let mut text = format!(
            "\
prefix=${{pcfiledir}}/{up}
exec_prefix=${{prefix}}
bindir=${{prefix}}/bin
includedir=${{prefix}}/include
libdir=${{prefix}}/{lib}

CONDUIT_INCLUDEDIR=${{includedir}}
CONDUIT_LIBDIR=${{libdir}}
"
        );
        text += if self.shared {
            "CONDUIT_RPATH=-Wl,-rpath,${libdir}\n"
        } else {
            "CONDUIT_RPATH=\n"
        };
        for (name, value) in self.variables {
            text += &format!("{name}={value}\n");
        }
        text + &format!(
            "
Name: {name}
Description: {description}
Version: {version}
Cflags: ${{{family}_CPPFLAGS}} ${{{family}_CFLAGS}}
Libs: ${{{family}_LDFLAGS}} ${{{family}_LIBS}}
"
        )
    }
}
