//! Conduit's tour: `cargo run --release`.

fn main() -> std::process::ExitCode {
    conduit_examples::tour::main()
}
