//! Tests of the public state machines.

mod hostile;
mod messages;
mod tracker;
mod upstream;

/// A rank needs the same amount of memory in jobs of 10, 10,000 and 1,000,000 ranks, because no
/// type has per-rank state.
#[test]
fn memory_does_not_depend_on_the_number_of_ranks() {
    use lanes::{LaneKind, Lanes, Outlet, Sampler, Settings, Tracker};
    let settings = Settings::default();
    let lanes = Lanes::new(0, LaneKind::Both, settings.clone()).unwrap();
    let inline = size_of::<Sampler>() + size_of::<Tracker>() + size_of::<Lanes>();
    let per_slot = lanes.slot_size() + size_of::<Outlet>();
    let all = inline + usize::from(settings.slots) * per_slot;
    assert!(size_of::<Tracker>() < 1024);
    assert_eq!(
        [inline, per_slot, all],
        [1_208, 36, 1_784],
        "docs/lanes.md states these figures"
    );
}
