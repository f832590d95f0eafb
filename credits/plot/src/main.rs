//! The program `credit-plot`, which draws a picture of a job's credit statistics.

use std::process::ExitCode;

fn main() -> ExitCode {
    credit_plot::cli::main()
}
