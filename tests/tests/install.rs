//! `cargo xtask install` as its users see it: the installed files, programs compiled and linked
//! with them, and how these start and end.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use conduit_tests::installed::{self, Link, Prefix, WARNINGS};
use conduit_tests::job::{Finished, Job};
use tempfile::TempDir;

fn prefix() -> &'static Prefix {
    installed::debug(env!("CARGO_TARGET_TMPDIR"))
}

fn tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The README's example.
fn hello() -> PathBuf {
    tests().join("../examples/c/hello.c")
}

fn source(name: &str) -> PathBuf {
    tests().join("c/install").join(name)
}

/// A program that is removed with its folder.
struct Program {
    folder: TempDir,
    path: PathBuf,
}

impl Program {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        Program { folder, path }
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Returns a job without a launcher.
    fn alone(&self, arguments: &[&str]) -> Job {
        Job::alone(&self.path, arguments)
    }

    /// Returns a job started with one of the launchers and these words.
    fn by(&self, launcher: &str, options: &[&str], arguments: &[&str]) -> Job {
        let words = options
            .iter()
            .copied()
            .chain([self.text()])
            .chain(arguments.iter().copied());
        Job::alone(prefix().launcher(launcher), words)
    }
}

fn built(link: Link, package: &str, compiler: &[&str], source: &Path) -> Program {
    let program = Program::new();
    let compiler: Vec<&str> = compiler.iter().copied().chain(WARNINGS).collect();
    prefix()
        .build(link, package, &compiler, source, &program.path)
        .unwrap_or_else(|error| panic!("{error:#}"));
    program
}

/// Builds the program of `job.c` for a conduit.
fn job(conduit: &str) -> Program {
    built(
        Link::Static,
        &format!("gasnet-{conduit}-seq"),
        &["gcc", "-std=gnu99"],
        &source("job.c"),
    )
}

#[track_caller]
fn ran(job: Job) -> Finished {
    job.run().expect("nothing is left behind")
}

#[track_caller]
fn succeeds(job: Job) -> String {
    let finished = ran(job);
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    finished.stdout
}

/// Requires one line from each rank with its number, in any order.
#[track_caller]
fn says(job: Job, ranks: usize, rest: &str) {
    let stdout = succeeds(job);
    let lines: BTreeSet<&str> = stdout.lines().collect();
    let wanted: Vec<String> = (0..ranks)
        .map(|rank| format!("rank {rank} of {ranks}: {rest}"))
        .collect();
    assert_eq!(
        lines,
        wanted.iter().map(String::as_str).collect(),
        "{stdout}"
    );
}

#[track_caller]
fn refused(job: Job, code: i32, message: &str) {
    let finished = ran(job);
    assert_eq!(finished.code, Some(code), "{finished:#?}");
    assert!(finished.stderr.contains(message), "{finished:#?}");
}

/// Requires the output of four ranks of the example.
#[track_caller]
fn greets(job: Job) {
    let stdout = succeeds(job);
    let lines: BTreeSet<&str> = stdout.lines().collect();
    let line = |rank: u32| {
        let left = (rank + 3) % 4;
        format!("rank {rank} of 4: rank {left} wrote, rank {left} greeted")
    };
    let wanted: Vec<String> = (0..4).map(line).collect();
    assert_eq!(
        lines,
        wanted.iter().map(String::as_str).collect(),
        "{stdout}"
    );
}

/// Returns all files below a folder by their relative paths; links with their targets.
fn files(folder: &Path) -> BTreeMap<PathBuf, Option<PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else {
                let target = metadata.is_symlink().then(|| fs::read_link(&path).unwrap());
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), target);
            }
        }
    }
    found
}

#[test]
fn everything_lies_where_build_systems_look_for_it() {
    let there = files(prefix().debug());
    let mut wanted: Vec<String> = Vec::new();
    let headers = [
        "gasnet",
        "gasnetex",
        "gasnet_fwd",
        "gasnet_tools",
        "gasnet_config",
        "gasnet_vis",
        "gasnet_coll",
        "gasnet_ratomic",
        "gasnet_mk",
    ];
    wanted.extend(headers.map(|name| format!("include/{name}.h")));
    for mode in ["seq", "par"] {
        wanted.push(format!("include/gasnet_tools-{mode}.mak"));
        wanted.push(format!("lib/libgasnet_tools-{mode}.a"));
        wanted.push(format!("lib/shared/libgasnet_tools-{mode}.so"));
        wanted.push(format!("lib/pkgconfig/gasnet_tools-{mode}.pc"));
    }
    for mode in ["seq", "parsync", "par"] {
        for conduit in ["smp", "udp", "ofi", "conduit"] {
            wanted.push(format!("include/{conduit}-conduit/gasnet_core.h"));
            wanted.push(format!("include/{conduit}-conduit/{conduit}-{mode}.mak"));
            wanted.push(format!("lib/libgasnet-{conduit}-{mode}.a"));
            wanted.push(format!("lib/shared/libgasnet-{conduit}-{mode}.so"));
            wanted.push(format!("lib/pkgconfig/gasnet-{conduit}-{mode}.pc"));
            wanted.push(format!("lib/shared/pkgconfig/gasnet-{conduit}-{mode}.pc"));
            wanted.push(format!("lib/cmake/GASNet/GASNet-{conduit}-{mode}.cmake"));
            wanted.push(format!("bin/gasnetrun_{conduit}"));
        }
    }
    wanted.extend(["bin/conduit-run", "bin/amudprun"].map(str::to_owned));
    wanted.push("lib/mercury/libna_plugin_conduit.so".to_owned());
    for file in wanted {
        assert!(there.contains_key(Path::new(&file)), "{file}");
    }
    for name in there.keys() {
        let name = name.file_name().unwrap().to_str().unwrap();
        assert!(!name.starts_with('.'), "{name} is left behind");
    }
}

#[test]
fn nothing_holds_the_prefix() {
    let root = prefix().root();
    let text = root.to_str().unwrap();
    for (file, target) in files(root) {
        match target {
            Some(target) => {
                assert!(
                    target.is_relative(),
                    "{}: {}",
                    file.display(),
                    target.display()
                );
                assert!(
                    root.join(&file).exists(),
                    "the link {} is broken",
                    file.display()
                );
            }
            None if file
                .extension()
                .is_some_and(|end| ["mak", "pc", "h"].iter().any(|text| end == *text)) =>
            {
                let contents = fs::read_to_string(root.join(&file)).unwrap();
                assert!(!contents.contains(text), "{}", file.display());
            }
            None => {}
        }
    }
}

#[test]
fn installing_again_changes_nothing() {
    let root = prefix().root();
    let dates = || -> BTreeMap<PathBuf, SystemTime> {
        let date = |file: PathBuf| {
            let date = fs::symlink_metadata(root.join(&file))
                .unwrap()
                .modified()
                .unwrap();
            (file, date)
        };
        files(root).into_keys().map(date).collect()
    };
    let before = dates();
    Prefix::options(root).run().unwrap();
    assert_eq!(dates(), before);
}

#[test]
fn an_error_names_the_command_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut install = Prefix::options(&folder.path().join("prefix"));
    install.debug_profile = "no-such-profile".to_owned();
    let error = format!("{:#}", install.run().unwrap_err());
    assert!(
        error.contains("--profile no-such-profile") && error.contains("failed: exit status"),
        "{error}"
    );
    let error = format!(
        "{:#}",
        Prefix::options(Path::new("/a prefix")).run().unwrap_err()
    );
    assert!(
        error.contains("\"/a prefix\" has the character ' '"),
        "{error}"
    );
}

/// Returns the exported symbols of a library.
fn symbols(options: &[&str], library: &str) -> BTreeSet<String> {
    let library = prefix().debug().join("lib").join(library);
    let words = options.iter().copied().chain([
        "--defined-only",
        "--extern-only",
        "--format=posix",
        library.to_str().unwrap(),
    ]);
    let text = succeeds(Job::alone("nm", words));
    let names = text
        .lines()
        .filter(|line| line.contains(' '))
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

#[test]
fn libraries_show_the_names_of_the_interface_and_no_others() {
    for library in [
        "gasnet-conduit-seq",
        "gasnet-conduit-par",
        "gasnet_tools-par",
    ] {
        let shared = symbols(&["--dynamic"], &format!("shared/lib{library}.so"));
        assert_eq!(
            symbols(&[], &format!("lib{library}.a")),
            shared,
            "{library}"
        );
        assert!(!shared.is_empty());
        for name in &shared {
            let known = [
                "gex_",
                "gasnet_",
                "gasnett_",
                "conduit_gex_",
                "conduit_gasnet_",
                "conduit_tools_",
                "_gasnet",
            ];
            assert!(
                known.iter().any(|prefix| name.starts_with(prefix)),
                "{library}: {name}"
            );
        }
    }
}

/// Mercury loads the plugin while it is itself being loaded, also in programs that use other
/// plugins.
#[test]
fn the_plugin_for_mercury_has_one_name_and_needs_no_library_but_the_systems() {
    let library = "mercury/libna_plugin_conduit.so";
    let shown = symbols(&["--dynamic"], library);
    let wanted = ["na_conduit_class_ops_g".to_owned()];
    assert_eq!(shown, BTreeSet::from(wanted));
    let path = prefix().debug().join("lib").join(library);
    let dynamic = succeeds(Job::alone("readelf", ["-d", path.to_str().unwrap()]));
    for needed in dynamic.lines().filter(|line| line.contains("(NEEDED)")) {
        let known = ["libc.so", "libgcc_s.so", "ld-linux", "libm.so"];
        assert!(known.iter().any(|name| needed.contains(name)), "{needed}");
    }
}

#[test]
fn the_example_is_built_with_pkg_config() {
    for (link, compiler) in [
        (Link::Static, &["gcc", "-std=c99"][..]),
        (Link::Static, &["g++", "-std=c++11", "-x", "c++"]),
        (Link::Static, &["g++", "-std=c++17", "-x", "c++"]),
        (Link::Shared, &["gcc", "-std=c99"]),
        (Link::Shared, &["g++", "-std=c++17", "-x", "c++"]),
    ] {
        for package in ["gasnet-smp-seq", "gasnet-smp-par"] {
            let program = built(link, package, compiler, &hello());
            greets(program.by("conduit-run", &["-n", "4"], &[]));
        }
    }
}

/// Rules as in GASNet's README.
const RULES: &str = "\
program.o: $(SOURCE)
\t$(GASNET_CC) $(GASNET_CPPFLAGS) $(GASNET_CFLAGS) -c -o $@ $<
program: program.o
\t$(GASNET_LD) $(GASNET_LDFLAGS) -o $@ $< $(GASNET_LIBS)
";

const RULES_CXX: &str = "\
program.o: $(SOURCE)
\t$(GASNET_CXX) -x c++ $(GASNET_CXXCPPFLAGS) $(GASNET_CXXFLAGS) -c -o $@ $<
program: program.o
\t$(GASNET_CXX) $(GASNET_LDFLAGS) -o $@ $< $(GASNET_LIBS)
";

/// With CMake's own package, by name and by variables, and with pkg-config from CMake.
#[test]
fn the_example_is_built_with_cmake() {
    if std::env::var_os("CONDUIT_TEST_CMAKE").is_none() {
        eprintln!("skipped: CONDUIT_TEST_CMAKE is not set");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let project = r#"
cmake_minimum_required(VERSION 3.13)
project(ring LANGUAGES C)
find_package(GASNet 2020.1 CONFIG REQUIRED COMPONENTS smp-seq udp-par)
find_package(PkgConfig REQUIRED)
pkg_check_modules(RING REQUIRED IMPORTED_TARGET gasnet-smp-parsync)
foreach(target GASNet::smp-seq GASNet::udp-par GASNet::GASNet PkgConfig::RING)
  string(MAKE_C_IDENTIFIER ${target} name)
  add_executable(${name} ${SOURCE})
  target_link_libraries(${name} ${target})
endforeach()
"#;
    fs::write(folder.path().join("CMakeLists.txt"), project).unwrap();
    let (build, root) = (folder.path().join("build"), prefix().debug());
    let cmake = |arguments: &[&str]| {
        let output = Command::new("cmake")
            .args(arguments)
            .env("PKG_CONFIG_PATH", root.join("lib/pkgconfig"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    };
    cmake(&[
        "-S",
        folder.path().to_str().unwrap(),
        "-B",
        build.to_str().unwrap(),
        &format!("-DSOURCE={}", hello().display()),
        &format!("-DCMAKE_PREFIX_PATH={}", root.display()),
        "-DGASNet_CONDUIT=ofi",
        "-DGASNet_THREADING=par",
    ]);
    cmake(&["--build", build.to_str().unwrap()]);
    for name in [
        "GASNet__smp_seq",
        "GASNet__udp_par",
        "GASNet__GASNet",
        "PkgConfig__RING",
    ] {
        let launcher = prefix().launcher("conduit-run");
        greets(Job::new(launcher, 4, build.join(name), &[]));
    }
}

#[test]
fn the_readme_shows_the_example() {
    let readme = fs::read_to_string(tests().join("../README.md")).unwrap();
    let example = fs::read_to_string(hello()).unwrap();
    assert!(
        readme.contains(&format!("```c\n{example}```")),
        "examples/c/hello.c and the README differ"
    );
}

#[test]
fn the_examples_makefile_builds_it() {
    let program = Program::new();
    let makefile = tests().join("../examples/c/Makefile");
    let debug = format!("PREFIX={}", prefix().debug().display());
    let folder = program.folder.path().to_str().unwrap();
    let words = ["-C", folder, "-f", makefile.to_str().unwrap(), &debug];
    succeeds(Job::alone("make", words));
    let hello = program.folder.path().join("hello");
    greets(Job::new(prefix().launcher("conduit-run"), 4, hello, &[]));
}

#[test]
fn the_example_is_built_with_the_make_fragment() {
    let source = format!("SOURCE={}", hello().display());
    for (fragment, rules, shared) in [
        ("smp-conduit/smp-seq.mak", RULES, false),
        ("smp-conduit/smp-par.mak", RULES_CXX, false),
        ("smp-conduit/smp-seq.mak", RULES_CXX, true),
        ("conduit-conduit/conduit-par.mak", RULES, true),
    ] {
        let program = Program::new();
        let mut arguments = vec![source.as_str(), "MANUAL_CFLAGS=-Werror"];
        if shared {
            arguments.push("GASNET_SHARED=1");
        }
        prefix()
            .make(fragment, program.folder.path(), rules, &arguments)
            .unwrap_or_else(|error| panic!("{error:#}"));
        let needed = succeeds(Job::alone("readelf", ["-d", program.text()]));
        assert_eq!(needed.contains("libgasnet-conduit-"), shared, "{needed}");
        greets(program.alone(&[]).env("GASNET_PSHM_NODES", "4"));
    }
}

/// Build systems compare the compilers with their own, which they know by absolute paths.
#[test]
fn compilers_are_named_by_absolute_paths() {
    const RULES: &str = "program: ; echo '$(GASNET_CC)|$(GASNET_CXX)|$(GASNET_LD)' > $@\n";
    const TOOLS: &str =
        "program: ; echo '$(GASNETTOOLS_CC)|$(GASNETTOOLS_CXX)|$(GASNETTOOLS_LD)' > $@\n";
    let names = ["CC", "CXX", "LD"];
    let absolute = |compilers: [&str; 3], what: &str| {
        for (name, compiler) in names.into_iter().zip(compilers) {
            let program = compiler.split_whitespace().next().unwrap_or_default();
            let path = Path::new(program);
            assert!(
                path.is_absolute() && path.is_file(),
                "{what} {name}: {compiler:?}"
            );
        }
    };
    for (fragment, rules) in [
        ("smp-conduit/smp-seq.mak", RULES),
        ("gasnet_tools-par.mak", TOOLS),
    ] {
        let folder = tempfile::tempdir().unwrap();
        prefix()
            .make(fragment, folder.path(), rules, &[])
            .unwrap_or_else(|error| panic!("{error:#}"));
        let text = fs::read_to_string(folder.path().join("program")).unwrap();
        let compilers: Vec<&str> = text.trim().split('|').collect();
        absolute(compilers.try_into().unwrap(), fragment);
    }
    let values = names.map(|name| {
        let variable = format!("--variable=GASNET_{name}");
        let value = prefix().pkg_config(Link::Static, &[&variable, "gasnet-udp-par"]);
        value.unwrap().join(" ")
    });
    absolute(values.each_ref().map(String::as_str), "pkg-config");
    let target = prefix()
        .debug()
        .join("lib/cmake/GASNet/GASNet-ofi-parsync.cmake");
    let target = fs::read_to_string(target).unwrap();
    let values = names.map(|name| {
        let set = format!("set(GASNet_{name} [[");
        let line = target.lines().find_map(|line| line.strip_prefix(&set));
        line.and_then(|line| line.strip_suffix("]])")).unwrap()
    });
    absolute(values, "CMake");
}

#[test]
fn a_conduits_folder_says_which_it_is() {
    for conduit in ["smp", "udp"] {
        // As makefiles without GASNET_DEFINES do.
        let program = Program::new();
        let include = prefix().debug().join("include");
        let include = include.to_str().unwrap();
        let words = [
            "-std=gnu99".to_owned(),
            "-DGASNET_SEQ".to_owned(),
            format!("-I{include}"),
            format!("-I{include}/{conduit}-conduit"),
            source("job.c").display().to_string(),
            "-o".to_owned(),
            program.text().to_owned(),
            format!("-L{}", prefix().debug().join("lib").display()),
            format!("-lgasnet-{conduit}-seq"),
            "-lm".to_owned(),
        ];
        succeeds(Job::alone("gcc", words));
        let launcher = format!("gasnetrun_{conduit}");
        says(program.by(&launcher, &["-n", "2"], &[]), 2, "program");
    }
}

#[test]
fn a_moved_prefix_works_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("elsewhere");
    succeeds(Job::alone(
        "cp",
        [
            "-a",
            prefix().root().to_str().unwrap(),
            to.to_str().unwrap(),
        ],
    ));
    let moved = Prefix::at(to.clone());
    for link in [Link::Static, Link::Shared] {
        let program = Program::new();
        moved
            .build(link, "gasnet-smp-seq", &["gcc"], &hello(), &program.path)
            .unwrap();
        greets(Job::new(
            moved.launcher("gasnetrun_smp"),
            4,
            &program.path,
            &[],
        ));
    }
    let program = Program::new();
    let rules = "program:\n\t@echo $(GASNET_INCLUDES) $(GASNET_LIBS)\n";
    let words = moved
        .make("udp-conduit/udp-par.mak", program.folder.path(), rules, &[])
        .unwrap();
    let place = |part: &str| format!("{}/debug/{part}", to.display());
    assert!(
        words.starts_with(&format!(
            "-I{} -I{}",
            place("include"),
            place("include/udp-conduit")
        )),
        "{words}"
    );
    assert!(
        words.contains(&format!("-L{} -lgasnet-udp-par", place("lib"))),
        "{words}"
    );
}

#[test]
fn another_mode_or_build_is_a_link_error() {
    let program = Program::new();
    let package = "gasnet-smp-seq";
    for other in [
        &["gcc", "-UGASNET_SEQ", "-DGASNET_PAR"][..],
        &["gcc", "-UGASNET_DEBUG", "-DGASNET_NDEBUG"],
    ] {
        // After the package's own flags, which `-U` has to undo.
        let mut words = prefix()
            .pkg_config(Link::Static, &["--cflags", package])
            .unwrap();
        words.extend(other[1..].iter().map(|word| (*word).to_owned()));
        words.extend([
            hello().display().to_string(),
            "-o".to_owned(),
            program.text().to_owned(),
        ]);
        words.extend(
            prefix()
                .pkg_config(Link::Static, &["--libs", package])
                .unwrap(),
        );
        let finished = ran(Job::alone(other[0], words));
        assert_eq!(finished.code, Some(1), "{finished:#?}");
        assert!(
            finished
                .stderr
                .contains("undefined reference to `conduit_gex_library_"),
            "{finished:#?}"
        );
    }
}

#[test]
fn the_tools_are_there_alone_and_beside_the_library() {
    for package in ["gasnet_tools-seq", "gasnet_tools-par"] {
        for link in [Link::Static, Link::Shared] {
            succeeds(built(link, package, &["gcc", "-std=c99"], &source("tools.c")).alone(&[]));
        }
    }
    let program = Program::new();
    let source = format!("SOURCE={}", source("tools.c").display());
    let rules = RULES.replace("GASNET_", "GASNETTOOLS_");
    prefix()
        .make(
            "gasnet_tools-seq.mak",
            program.folder.path(),
            &rules,
            &[&source],
        )
        .unwrap();
    succeeds(program.alone(&[]));
    // Some build systems link both libraries, in either order.
    for both in [
        "-lgasnet_tools-par -lgasnet-smp-par",
        "-lgasnet-smp-par -lgasnet_tools-par",
    ] {
        let program = Program::new();
        let source = format!("SOURCE={}", hello().display());
        let rules = RULES.replace(
            "$(GASNET_LIBS)",
            &format!("$(GASNET_LIBDIRS) {both} $(GASNET_LIBS)"),
        );
        prefix()
            .make(
                "smp-conduit/smp-par.mak",
                program.folder.path(),
                &rules,
                &[&source],
            )
            .unwrap();
        greets(program.alone(&[]).env("GASNET_PSHM_NODES", "4"));
    }
}

#[test]
fn every_launcher_starts_four_ranks() {
    let smp = job("smp");
    let words = ["a b", "", "-n", "$x"];
    let rest = "program <a b> <> <-n> <$x>";
    says(smp.by("conduit-run", &["-n", "4"], &words), 4, rest);
    says(
        smp.by(
            "gasnetrun_smp",
            &["-n", "4", "-N", "1", "-c", "1", "-E", "HOME,PATH"],
            &words,
        ),
        4,
        rest,
    );
    says(
        smp.by("gasnetrun_conduit", &["-np", "4", "--"], &words),
        4,
        rest,
    );
    says(smp.alone(&words).env("GASNET_PSHM_NODES", "4"), 4, rest);
    says(smp.alone(&words).env("GASNET_PSHM_NODES", "1"), 1, rest);
    says(smp.alone(&words), 1, rest);
    let udp = job("udp");
    says(
        udp.by("amudprun", &["-np", "4", "-spawn", "L"], &words),
        4,
        rest,
    );
    says(udp.by("gasnetrun_udp", &["-n", "4"], &words), 4, rest);
    let with_number: Vec<&str> = ["4"].into_iter().chain(words).collect();
    says(udp.alone(&with_number).env("GASNET_SPAWNFN", "L"), 4, rest);
    says(
        udp.alone(&["1", "x"]).env("GASNET_SPAWNFN", "L"),
        1,
        "program <x>",
    );
    says(udp.by("conduit-run", &["-n", "3"], &words), 3, rest);
}

/// Two daemons on this machine, whose ranks take it for two hosts, and commands of other launchers.
#[test]
fn launchers_start_ranks_on_several_hosts() {
    let udp = job("udp");
    let words = ["a b", "", "$x"];
    let rest = "program <a b> <> <$x>";
    let folder = prefix().launcher("amudprun");
    let folder = folder.parent().expect("a folder").to_str().expect("UTF-8");
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let hosts = |job: Job| {
        job.env("GASNET_SSH_SERVERS", "a b a c")
            .env("GASNET_SSH_CMD", r#"sh -c 'CONDUIT_HOST="$0" exec "$@"'"#)
            .env("PATH", &path)
    };
    let by = |launcher, options: &[&str]| udp.by(launcher, options, &words);
    for options in [
        &["-n", "4", "-N", "2"][..],
        &["-n", "4"],
        &["-n", "4", "-spawner=ssh"],
    ] {
        says(hosts(by("gasnetrun_udp", options)), 4, rest);
    }
    says(hosts(by("amudprun", &["-np", "4", "-spawn", "S"])), 4, rest);
    let with_number: Vec<&str> = ["4"].into_iter().chain(words).collect();
    let alone = |spawn| hosts(udp.alone(&with_number)).env("GASNET_SPAWNFN", spawn);
    says(alone("S"), 4, rest);
    let command = format!("{folder}/conduit-run -n %N %C");
    says(alone("C").env("GASNET_CSPAWN_CMD", &command), 4, rest);
    for (spawner, variable) in [("mpi", "MPIRUN_CMD"), ("pmi", "PMIRUN_CMD")] {
        let job = by("gasnetrun_udp", &["-n", "4", "-spawner", spawner]);
        says(job.env(variable, &command), 4, rest);
    }
    refused(
        hosts(by("gasnetrun_udp", &["-n", "4", "-N", "4"])),
        2,
        "-N 4: GASNET_SSH_SERVERS names 3 hosts",
    );
    refused(
        by("gasnetrun_udp", &["-n", "4", "-spawner=ssh"]).env("PATH", &path),
        2,
        "no hosts are named",
    );
    let broken = hosts(by("gasnetrun_udp", &["-n", "4"])).env("GASNET_SSH_CMD", "false");
    refused(broken, 2, "host a: its daemon has not started");
}

#[test]
fn without_a_spawner_ranks_are_started_here_and_a_note_says_so() {
    let finished = ran(job("udp").alone(&["2"]));
    assert_eq!(finished.code, Some(0), "{finished:#?}");
    assert!(
        finished.stderr.contains("GASNET_SPAWNFN is not set"),
        "{finished:#?}"
    );
}

#[test]
fn arguments_may_be_written_to() {
    let compiler = ["gcc", "-std=gnu99", "-DCUTS_ARGUMENTS"];
    for link in [Link::Static, Link::Shared] {
        let smp = built(link, "gasnet-smp-seq", &compiler, &source("job.c"));
        // Ranks that kept words from memory would have a third one.
        says(
            smp.alone(&["1:2", "x"]).env("GASNET_PSHM_NODES", "4"),
            4,
            "program <1> <x>",
        );
    }
    let udp = built(Link::Static, "gasnet-udp-seq", &compiler, &source("job.c"));
    says(
        udp.alone(&["4", "1:2", "x"]).env("GASNET_SPAWNFN", "L"),
        4,
        "program <1> <x>",
    );
}

#[test]
fn arguments_may_be_null() {
    let compiler = ["gcc", "-std=gnu99", "-DNO_ARGUMENTS"];
    let smp = built(Link::Static, "gasnet-smp-seq", &compiler, &source("job.c"));
    says(
        smp.alone(&["x y"]).env("GASNET_PSHM_NODES", "4"),
        4,
        "program <x y>",
    );
    let udp = built(Link::Static, "gasnet-udp-seq", &compiler, &source("job.c"));
    says(
        udp.alone(&["4", "x y"]).env("GASNET_SPAWNFN", "L"),
        4,
        "program <x y>",
    );
}

#[test]
fn the_exit_code_is_the_jobs() {
    let (smp, udp) = (job("smp"), job("udp"));
    for how in ["exit", "return"] {
        for code in ["7", "200"] {
            let jobs = [
                smp.by("conduit-run", &["-n", "3"], &[how, code]),
                smp.by("gasnetrun_smp", &["-n", "3"], &[how, code]),
                smp.alone(&[how, code]).env("GASNET_PSHM_NODES", "3"),
                udp.alone(&["3", how, code]).env("GASNET_SPAWNFN", "L"),
            ];
            for job in jobs {
                let finished = ran(job);
                assert_eq!(finished.code, code.parse().ok(), "{how}: {finished:#?}");
            }
        }
    }
}

#[test]
fn rank_0_reads_the_jobs_input() {
    let smp = job("smp");
    for command in [
        format!("echo line | GASNET_PSHM_NODES=3 {} input", smp.text()),
        format!(
            "echo line | {} -n 3 {} input",
            prefix().launcher("gasnetrun_smp").display(),
            smp.text()
        ),
    ] {
        assert_eq!(
            succeeds(Job::alone("sh", ["-c", &command])),
            "rank 0 read line\n"
        );
    }
}

#[test]
fn a_signal_for_the_launcher_ends_the_job() {
    let smp = job("smp");
    for job in [
        smp.alone(&["terminate"]).env("GASNET_PSHM_NODES", "3"),
        smp.by("gasnetrun_smp", &["-n", "3"], &["terminate"]),
    ] {
        let finished = ran(job);
        assert_eq!(finished.code, Some(128 + 15), "{finished:#?}");
    }
}

#[test]
fn wrong_values_are_refused() {
    let (smp, udp) = (job("smp"), job("udp"));
    for value in ["0", "-4", "four", "65536"] {
        let message =
            format!("GASNET_PSHM_NODES is \"{value}\"; accepted: a number from 1 to 65535");
        refused(smp.alone(&[]).env("GASNET_PSHM_NODES", value), 99, &message);
        refused(
            udp.alone(&[value]).env("GASNET_SPAWNFN", "L"),
            99,
            "accepted: a number from 1 to 65535",
        );
        refused(
            smp.by("gasnetrun_smp", &["-n", value], &[]),
            2,
            &format!("-n {value}: expected a number from 1 to 65535"),
        );
    }
    refused(
        udp.alone(&[]).env("GASNET_SPAWNFN", "L"),
        99,
        "the first argument of a conduit udp program",
    );
    refused(
        udp.alone(&["4"]).env("GASNET_SPAWNFN", "M"),
        99,
        "GASNET_SPAWNFN is \"M\"; accepted: L",
    );
    refused(
        udp.alone(&["4"])
            .env("GASNET_SPAWNFN", "S")
            .env("PATH", "/nowhere"),
        99,
        "cannot execute amudprun",
    );
    refused(
        smp.alone(&[]).env("GASNET_EXITTIMEOUT", "soon"),
        99,
        "GASNET_EXITTIMEOUT is \"soon\"; accepted",
    );
    refused(
        smp.by("gasnetrun_smp", &[], &[]),
        2,
        "the number of ranks is missing",
    );
    refused(
        smp.by("gasnetrun_smp", &["-n", "4", "-spawner=ssh"], &[]),
        2,
        "-spawner ssh",
    );
    refused(
        smp.by("amudprun", &["-np", "4"], &[]),
        2,
        "is compiled for conduit smp; start it by gasnetrun_smp or conduit-run",
    );
    refused(
        udp.by("gasnetrun_smp", &["-n", "4"], &[]),
        2,
        "is compiled for conduit udp",
    );
}

/// Such a process is neither a rank nor a launcher of its own ranks.
#[test]
fn what_another_launcher_has_started_is_refused() {
    let smp = job("smp");
    let of_slurm = |job: Job| {
        job.env("SLURM_STEP_NUM_TASKS", "2")
            .env("SLURM_PROCID", "1")
    };
    let found = "SLURM_STEP_NUM_TASKS=2 and SLURM_PROCID=1 in the environment";
    refused(of_slurm(smp.alone(&[])), 99, found);
    let launcher = of_slurm(smp.alone(&[]).env("GASNET_PSHM_NODES", "2"));
    refused(launcher, 99, found);
    for ranks in ["1", "2"] {
        let job = smp.alone(&[]).env("GASNET_PSHM_NODES", ranks);
        succeeds(of_slurm(job.env("CONDUIT_ALONE", "1")));
    }
}

#[test]
fn a_launcher_can_be_asked_what_it_would_do() {
    let smp = job("smp");
    let finished = ran(smp.by("gasnetrun_smp", &["-n", "4", "-t"], &["x y"]));
    assert_eq!(
        (finished.code, finished.stdout.as_str()),
        (Some(0), ""),
        "{finished:#?}"
    );
    assert!(
        finished
            .stderr
            .contains(&format!("4 ranks of {:?} \"x y\"", smp.text())),
        "{finished:#?}"
    );
}
