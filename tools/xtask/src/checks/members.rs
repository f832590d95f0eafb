//! The workspace's packages and their dependencies on each other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::build::Cargo;
use crate::command;

/// The packages by name.
#[derive(Debug)]
pub(super) struct Members(BTreeMap<String, Member>);

#[derive(Debug)]
struct Member {
    folder: PathBuf,
    dependencies: BTreeSet<String>,
    has_library: bool,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Debug, Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    dependencies: Vec<Dependency>,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    path: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    test: bool,
}

impl Members {
    /// Reads the packages from `cargo metadata`.
    pub(super) fn read(cargo: &Cargo) -> Result<Self> {
        let mut command = cargo.task("metadata");
        let text = command::output(command.args(["--format-version", "1", "--no-deps"]))?;
        let metadata: Metadata = serde_json::from_str(&text).context("cargo metadata")?;
        let member = |package: Package| {
            let own = package.dependencies.into_iter();
            let own = own.filter(|dependency| dependency.path.is_some());
            let mut targets = package.targets.iter();
            let member = Member {
                folder: package.manifest_path.parent()?.to_owned(),
                dependencies: own.map(|dependency| dependency.name).collect(),
                has_library: targets.any(|target| {
                    target.test && target.kind.iter().any(|kind| kind.contains("lib"))
                }),
            };
            Some((package.name, member))
        };
        Ok(Self(
            metadata.packages.into_iter().filter_map(member).collect(),
        ))
    }

    /// Returns the package that a file belongs to.
    pub(super) fn of(&self, file: &Path) -> Option<&str> {
        let members = self
            .0
            .iter()
            .filter(|(_, member)| file.starts_with(&member.folder));
        let (name, _) = members.max_by_key(|(_, member)| member.folder.as_os_str().len())?;
        Some(name)
    }

    /// Returns whether there is such a package.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether the package has a library with unit tests.
    pub(super) fn has_library(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|member| member.has_library)
    }

    /// Returns these packages and all that depend on them, directly or indirectly, including
    /// dependencies for tests.
    pub(super) fn with_dependents(&self, names: &BTreeSet<String>) -> BTreeSet<String> {
        let mut found = names.clone();
        loop {
            let more: Vec<_> = self
                .0
                .iter()
                .filter(|(name, member)| {
                    !found.contains(*name) && !member.dependencies.is_disjoint(&found)
                })
                .map(|(name, _)| name.clone())
                .collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependents_of_dependents_are_found() {
        let cargo = Cargo::new();
        let members = Members::read(&cargo).unwrap();
        let of = |name: &str| members.with_dependents(&[name.to_owned()].into());
        let of_core = of("pgas-conduit-core");
        for name in [
            "pgas-conduit-core",
            "pgas-conduit-udp",
            "pgas-conduit",
            "conduit-tests",
        ] {
            assert!(of_core.contains(name), "{name}: {of_core:?}");
        }
        assert!(!of_core.contains("pgas-credits"));
        assert!(!of("credit-plot").contains("conduit-tests"));
        let file = cargo.root().join("conduit-ofi/sys/src/lib.rs");
        assert_eq!(members.of(&file), Some("pgas-libfabric-sys"));
        assert_eq!(members.of(Path::new("/elsewhere/lib.rs")), None);
    }
}
