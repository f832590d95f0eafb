//! One rank of a several-process test of the Rust API: `facade PROGRAM [ARGUMENT]`, see [`conduit_tests::ranks`].

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    conduit_tests::ranks::run(&arguments)
}
