//! Every case of the conformance suite as a separate test, for every network and its settings.

mod conformance_composite;
mod conformance_na;
mod conformance_ofi;
mod conformance_portals4;
mod conformance_shm;
mod conformance_udp;

use conduit_tests::sample;
use libtest_mimic::Arguments;

fn main() {
    // SAFETY: the process has a single thread, and the library that reads the variable is not
    // loaded yet.
    unsafe { std::env::set_var(refusing_fabric::FAULTS, conformance_ofi::faults()) };
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    conformance_shm::add_all(&mut trials);
    conformance_composite::add_all(&mut trials);
    conformance_na::add_all(&mut trials);
    conformance_udp::add_all(&mut trials);
    conformance_ofi::add_all(&mut trials);
    conformance_portals4::add_all(&mut trials);
    sample::draw(&mut trials);
    libtest_mimic::run(&arguments, trials).exit();
}
