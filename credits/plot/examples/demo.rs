//! Simulates a small job in one process and writes its credit statistics: `cargo run -p credit-plot
//! --example demo -- DIRECTORY [RANKS]`.

#[path = "../tests/demo/mod.rs"]
mod demo;

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: demo DIRECTORY [RANKS]")?);
    let ranks = args.next().map_or(Ok(16), |ranks| ranks.parse())?;
    let demo = demo::Demo {
        ranks,
        partners: 3,
        rounds: 40,
        loan: 8,
        banked: 60,
        epoch: 64,
        clock: true,
    };
    std::fs::create_dir_all(&folder)?;
    for (name, text) in demo.files("demo") {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(())
}
