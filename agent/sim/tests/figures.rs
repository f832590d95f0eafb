//! Checks that the agents' figures in `docs/figures` can be reproduced.

use sim::program::Program;

const AGENT_SIM: Program = Program(env!("CARGO_BIN_EXE_agent-sim"));

fn is_large(command: &str) -> bool {
    ["--nodes 256", "--nodes 1024"]
        .iter()
        .any(|end| command.ends_with(end))
}

#[test]
fn figures_come_out_again() {
    AGENT_SIM.renews_figures(|command| !is_large(command));
}

#[test]
#[ignore = "takes minutes"]
fn large_figures_come_out_again() {
    AGENT_SIM.renews_figures(is_large);
}
