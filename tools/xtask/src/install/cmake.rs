//! CMake's package `GASNet`, in `lib/cmake/GASNet`. It defines the targets `GASNet::<c>-<mode>`,
//! which have the same names as in the `FindGASNet` modules that projects bundle, and the target
//! `GASNet::GASNet`, which stands for the one that `GASNet_CONDUIT` and `GASNet_THREADING` select.

use super::Conduit;
use super::settings::{SYSTEM_LIBRARIES, Variables};
use crate::build::Mode;

/// The package's configuration file, which includes the files of the installed targets in the same
/// folder.
pub(super) const CONFIG: &str = r#"get_filename_component(_GASNet_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(GASNet_CONDUITS)
set(GASNet_THREADING_OPTS)
file(GLOB _GASNet_TARGETS "${CMAKE_CURRENT_LIST_DIR}/GASNet-*-*.cmake")
foreach(_GASNet_TARGET IN LISTS _GASNet_TARGETS)
  include("${_GASNet_TARGET}")
endforeach()
list(REMOVE_DUPLICATES GASNet_CONDUITS)
list(REMOVE_DUPLICATES GASNet_THREADING_OPTS)

foreach(_GASNet_COMPONENT IN LISTS GASNet_FIND_COMPONENTS)
  if(TARGET GASNet::${_GASNet_COMPONENT})
    set(GASNet_${_GASNet_COMPONENT}_FOUND TRUE)
  elseif(GASNet_FIND_REQUIRED_${_GASNet_COMPONENT})
    set(GASNet_FOUND FALSE)
    set(GASNet_NOT_FOUND_MESSAGE "GASNet::${_GASNet_COMPONENT} is not installed in ${_GASNet_PREFIX}")
  endif()
endforeach()

if(GASNet_CONDUIT AND GASNet_THREADING AND NOT TARGET GASNet::GASNet)
  if(TARGET GASNet::${GASNet_CONDUIT}-${GASNet_THREADING})
    add_library(GASNet::GASNet INTERFACE IMPORTED)
    set_target_properties(GASNet::GASNet PROPERTIES
      INTERFACE_LINK_LIBRARIES GASNet::${GASNet_CONDUIT}-${GASNet_THREADING})
  else()
    set(GASNet_FOUND FALSE)
    set(GASNet_NOT_FOUND_MESSAGE
      "GASNet::${GASNet_CONDUIT}-${GASNet_THREADING} is not installed in ${_GASNet_PREFIX}")
  endif()
endif()
"#;

/// Returns the text of the file that checks the requested release. Releases are dates, and later
/// releases are compatible with earlier ones.
pub(super) fn version(release: &str) -> String {
    format!(
        r#"set(PACKAGE_VERSION "{release}")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"#
    )
}

/// Returns the words that begin with `start`, without that prefix, as a CMake list.
fn list(words: &str, start: &str) -> String {
    let words = words.split_whitespace();
    let bare: Vec<&str> = words.filter_map(|word| word.strip_prefix(start)).collect();
    bare.join(";")
}

/// Returns the text of the file of one target. The configuration file that includes it derives the
/// prefix from its own location, so the installation may be moved.
pub(super) fn target(conduit: Conduit, mode: Mode, variables: &Variables) -> String {
    let value = |wanted: &str| {
        let found = variables.iter().find(|(name, _)| *name == wanted);
        found.map_or("", |(_, value)| value)
    };
    let defines = list(value("GASNET_DEFINES"), "-D");
    // `GASNET_LD` refers to the C compiler.
    let (c, cxx) = (value("GASNET_CC"), value("GASNET_CXX"));
    let libraries = list(SYSTEM_LIBRARIES, "-l");
    format!(
        r#"list(APPEND GASNet_CONDUITS {conduit})
list(APPEND GASNet_THREADING_OPTS {mode})
set(GASNet_CC [[{c}]])
set(GASNet_CXX [[{cxx}]])
set(GASNet_LD [[{c}]])
if(NOT TARGET GASNet::{conduit}-{mode})
  add_library(GASNet::{conduit}-{mode} STATIC IMPORTED)
  set_target_properties(GASNet::{conduit}-{mode} PROPERTIES
    IMPORTED_LOCATION "${{_GASNet_PREFIX}}/lib/libgasnet-{conduit}-{mode}.a"
    INTERFACE_INCLUDE_DIRECTORIES "${{_GASNet_PREFIX}}/include;${{_GASNet_PREFIX}}/include/{conduit}-conduit"
    INTERFACE_COMPILE_DEFINITIONS "{defines}"
    INTERFACE_LINK_LIBRARIES "{libraries}")
endif()
"#
    )
}
