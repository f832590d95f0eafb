//! The libfabric that is loaded.

use std::path::PathBuf;

use libfabric_sys::Library;

/// Which libfabric to load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Which {
    /// The system's `libfabric.so.1`, or the copy that was built in where there is none.
    #[default]
    Any,
    /// The system's only.
    System,
    /// This file.
    File(PathBuf),
    /// The copy that was built in.
    Vendored,
}

impl Which {
    /// Parses the setting: a file's path, `system` or `vendored`.
    pub fn named(text: &str) -> Self {
        match text {
            "" => Self::Any,
            "system" => Self::System,
            "vendored" => Self::Vendored,
            path => Self::File(path.into()),
        }
    }

    /// Loads it.
    ///
    /// # Errors
    /// What was looked for, and why it can't be used.
    pub fn load(&self) -> Result<Library, String> {
        let open = |path| Library::load(path).map_err(|error| error.to_string());
        match self {
            Self::File(path) => open(Some(path.as_path())),
            Self::System => open(None),
            Self::Vendored => Library::vendored().ok_or_else(|| {
                "this program has no libfabric of its own (crate libfabric-vendored)".to_owned()
            }),
            Self::Any => open(None).or_else(|error| Library::vendored().ok_or(error)),
        }
    }
}
