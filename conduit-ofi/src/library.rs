//! The choice of the libfabric to load.

use std::path::PathBuf;

use libfabric_sys::Library;

/// The libfabric to load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Which {
    /// The system's `libfabric.so.1`, or the vendored copy if there is none.
    #[default]
    Any,
    /// Only the system's `libfabric.so.1`.
    System,
    /// The file at this path.
    File(PathBuf),
    /// The vendored copy.
    Vendored,
}

impl Which {
    /// Parses the setting, which is a file's path, `system` or `vendored`.
    pub fn named(text: &str) -> Self {
        match text {
            "" => Self::Any,
            "system" => Self::System,
            "vendored" => Self::Vendored,
            path => Self::File(path.into()),
        }
    }

    /// Loads the library that `self` names.
    ///
    /// # Errors
    /// Returns an error text that lists the libraries tried and the reasons why they are unusable.
    pub fn load(&self) -> Result<Library, String> {
        let open = |path| Library::load(path).map_err(|error| error.to_string());
        match self {
            Self::File(path) => open(Some(path.as_path())),
            Self::System => open(None),
            Self::Vendored => Library::vendored().ok_or_else(|| {
                "this program contains no vendored libfabric (crate libfabric-vendored)".to_owned()
            }),
            Self::Any => open(None).or_else(|error| Library::vendored().ok_or(error)),
        }
    }
}
