//! Installs the files of one build, optimised or debug, under its prefix.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::archive::{self, DebugInfo, Object};
use super::package::Package;
use super::settings::{self, Compilers, Release};
use super::{Conduit, cmake, files, fragment, header};
use crate::build::{Cargo, Launchers, Mode};

/// The folder of CMake's package.
const CMAKE: &str = "lib/cmake/GASNet";

/// The kind of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariantKind {
    Optimised,
    Debug,
}

impl VariantKind {
    /// Returns the compiler option with the define that tells headers for which library they are
    /// compiled.
    pub(super) fn define(self) -> &'static str {
        match self {
            VariantKind::Optimised => "-DGASNET_NDEBUG",
            VariantKind::Debug => "-DGASNET_DEBUG",
        }
    }

    /// Returns the compiler's optimisation flags for the client's own code.
    pub(super) fn optimisation(self) -> String {
        match self {
            VariantKind::Optimised => "-O3",
            VariantKind::Debug => "-g",
        }
        .to_owned()
    }

    fn debug_info(self) -> DebugInfo {
        match self {
            VariantKind::Optimised => DebugInfo::Strip,
            VariantKind::Debug => DebugInfo::Keep,
        }
    }
}

impl fmt::Display for VariantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            VariantKind::Optimised => "optimised",
            VariantKind::Debug => "a debug build",
        })
    }
}

/// A build and its destination.
#[derive(Debug)]
pub(super) struct Variant<'a> {
    pub(super) kind: VariantKind,
    pub(super) profile: &'a str,
    pub(super) prefix: &'a Path,
    pub(super) modes: &'a [Mode],
    pub(super) conduits: &'a [Conduit],
    pub(super) release: &'a Release,
    pub(super) compilers: &'a Compilers,
}

impl Variant<'_> {
    pub(super) fn install(&self, cargo: &Cargo) -> Result<()> {
        let include = self.prefix.join("include");
        files::copy_headers(&cargo.root().join("gasnet/include"), &include)?;
        for folder in ["lib/pkgconfig", "lib/shared/pkgconfig", CMAKE] {
            files::folder(&self.prefix.join(folder))?;
        }
        let folder = self.prefix.join(CMAKE);
        let version = cmake::version(&self.release.version);
        files::text(&folder.join("GASNetConfig.cmake"), cmake::CONFIG)?;
        files::text(&folder.join("GASNetConfigVersion.cmake"), &version)?;
        for conduit in self.conduits {
            let folder = include.join(format!("{conduit}-conduit"));
            files::folder(&folder)?;
            files::text(
                &folder.join("gasnet_core.h"),
                &header::text(*conduit, self.kind),
            )?;
        }

        self.install_plugin(&cargo.plugin(self.profile)?)?;
        let tools = self.install_tools(cargo)?;
        for mode in self.modes {
            let name = format!("gasnet-conduit-{mode}");
            let archive = cargo.gasnet(*mode, self.profile)?;
            self.install_library(&archive, &name, &tools)?;
            for conduit in self.conduits {
                self.install_name(&name, *conduit, *mode)?;
            }
        }
        Ok(())
    }

    /// Installs one library under all the names by which it is linked. Returns its symbols.
    ///
    /// All conduits are the same library; they differ only in the name that the client's header
    /// passes to the library at start. So there is one file, and the other names are relative
    /// symbolic links, which stay valid when the installation is packed or moved. All shared names
    /// have the same soname, so that parts of a program linked under different names share one
    /// copy.
    fn install_library(&self, archive: &Path, name: &str, weak: &[String]) -> Result<Vec<String>> {
        let scratch = Scratch::new(archive)?;
        let object = Object::link(archive, &scratch.0)?;
        let made = scratch.0.join("library.a");
        object.make_static(weak, &made)?;
        files::copy(&made, &self.prefix.join(format!("lib/lib{name}.a")))?;

        let soname = self.soname(name);
        let made = scratch.0.join("library.so");
        object.make_shared(&self.compilers.c, &soname, self.kind.debug_info(), &made)?;
        let folder = self.prefix.join("lib/shared");
        let file = format!("lib{name}.so.{}", self.release.own.full());
        files::copy(&made, &folder.join(&file))?;
        files::link(&folder.join(&soname), &file)?;
        files::link(&folder.join(format!("lib{name}.so")), &soname)?;
        Ok(object.exports)
    }

    /// Returns the name under which the dynamic linker looks for the library.
    fn soname(&self, name: &str) -> String {
        format!("lib{name}.so.{}", self.release.own.abi())
    }

    /// Installs the plugin for Mercury in a folder of its own, because Mercury loads all plugins in
    /// the folder that it is given.
    fn install_plugin(&self, plugin: &Path) -> Result<()> {
        let folder = self.prefix.join("lib/mercury");
        files::folder(&folder)?;
        let scratch = Scratch::new(plugin)?;
        let name = "libna_plugin_conduit.so";
        let mut file = plugin.to_owned();
        if self.kind.debug_info() == DebugInfo::Strip {
            file = scratch.0.join(name);
            archive::strip(plugin, &file)?;
        }
        files::copy(&file, &folder.join(name))
    }

    /// Installs the files of a conduit name in one mode: links to the library, make fragment,
    /// packages.
    fn install_name(&self, real: &str, conduit: Conduit, mode: Mode) -> Result<()> {
        let name = format!("gasnet-{conduit}-{mode}");
        if name != real {
            files::link(
                &self.prefix.join(format!("lib/lib{name}.a")),
                &format!("lib{real}.a"),
            )?;
            files::link(
                &self.prefix.join(format!("lib/shared/lib{name}.so")),
                &self.soname(real),
            )?;
        }
        let variables = settings::gasnet(self.kind, mode, conduit, self.compilers);
        let what = format!(
            "Conduit's GASNet interface, conduit {conduit}, mode {mode}, {}",
            self.kind
        );
        let fragment = format!("include/{conduit}-conduit/{conduit}-{mode}.mak");
        files::text(
            &self.prefix.join(fragment),
            &fragment::text(&what, 2, &variables),
        )?;
        let target = format!("{CMAKE}/GASNet-{conduit}-{mode}.cmake");
        files::text(
            &self.prefix.join(target),
            &cmake::target(conduit, mode, &variables),
        )?;
        self.install_packages(&name, &what, "GASNET", &variables)
    }

    /// Installs the portable tools, which are one library for all modes. Returns the library's
    /// symbols.
    fn install_tools(&self, cargo: &Cargo) -> Result<Vec<String>> {
        let name = "gasnet_tools-par";
        let archive = cargo.tools(self.profile)?;
        let exports = self.install_library(&archive, name, &[])?;
        for mode in [Mode::Seq, Mode::Par] {
            let variables = settings::tools(self.kind, mode, self.compilers);
            if mode != Mode::Par {
                files::link(
                    &self.prefix.join("lib/libgasnet_tools-seq.a"),
                    &format!("lib{name}.a"),
                )?;
                files::link(
                    &self.prefix.join("lib/shared/libgasnet_tools-seq.so"),
                    &self.soname(name),
                )?;
            }
            let what = format!(
                "Conduit's portable GASNet tools, mode {mode}, {}",
                self.kind
            );
            let fragment = format!("include/gasnet_tools-{mode}.mak");
            files::text(
                &self.prefix.join(fragment),
                &fragment::text(&what, 1, &variables),
            )?;
            self.install_packages(
                &format!("gasnet_tools-{mode}"),
                &what,
                "GASNETTOOLS",
                &variables,
            )?;
        }
        Ok(exports)
    }

    fn install_packages(
        &self,
        name: &str,
        description: &str,
        family: &str,
        variables: &settings::Variables,
    ) -> Result<()> {
        for (folder, shared) in [("lib/pkgconfig", false), ("lib/shared/pkgconfig", true)] {
            let package = Package {
                name,
                description,
                version: &self.release.version,
                family,
                variables,
                shared,
            };
            files::text(
                &self.prefix.join(folder).join(format!("{name}.pc")),
                &package.text(),
            )?;
        }
        Ok(())
    }
}

/// Installs the launchers. They are `conduit-run`, and one program under all of GASNet's names,
/// which acts according to the name by which it is called. If `debug` is set, the debug prefix gets
/// links to them.
pub(super) fn install_launchers(
    prefix: &Path,
    launchers: &Launchers,
    conduits: &[Conduit],
    debug: bool,
) -> Result<()> {
    const ONE: &str = "gasnetrun_conduit";
    let bin = prefix.join("bin");
    files::folder(&bin)?;
    let scratch = Scratch::new(&launchers.conduit_run)?;
    for (program, name) in [
        (&launchers.conduit_run, "conduit-run"),
        (&launchers.gasnetrun, ONE),
    ] {
        let stripped = scratch.0.join(name);
        archive::strip(program, &stripped)?;
        files::copy(&stripped, &bin.join(name))?;
    }
    let mut links: Vec<String> = conduits
        .iter()
        .filter(|conduit| **conduit != Conduit::Conduit)
        .map(|conduit| format!("gasnetrun_{conduit}"))
        .collect();
    if conduits.contains(&Conduit::Udp) {
        links.push("amudprun".to_owned());
    }
    for name in &links {
        files::link(&bin.join(name), ONE)?;
    }
    if debug {
        let bin = prefix.join("debug/bin");
        files::folder(&bin)?;
        for name in links.iter().map(String::as_str).chain(["conduit-run", ONE]) {
            files::link(&bin.join(name), &format!("../../bin/{name}"))?;
        }
    }
    Ok(())
}

/// Installs the licences and the page that describes the installation.
pub(super) fn install_documents(prefix: &Path, root: &Path) -> Result<()> {
    let folder = prefix.join("share/doc/conduit");
    files::folder(&folder)?;
    for document in [
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "docs/c-interface.md",
        "docs/mercury.md",
        "docs/settings.md",
    ] {
        let from = root.join(document);
        let name = from.file_name().unwrap_or_default();
        files::copy(&from, &folder.join(name))?;
    }
    Ok(())
}

/// A folder for temporary files beside cargo's artifact. Dropping a `Scratch` removes the folder
/// with its contents.
struct Scratch(PathBuf);

impl Scratch {
    fn new(beside: &Path) -> Result<Self> {
        let folder = beside.with_file_name(format!("install-{}", std::process::id()));
        files::folder(&folder).with_context(|| "creating a folder for temporary files")?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover folder only takes space.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
