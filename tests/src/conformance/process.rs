//! Entries over all memory of their process. All ranks of a world are in one process, so an address
//! of that process is valid for each of them.

use std::ptr;

use conduit_core::ni::{
    Atomic, AtomicOp, AtomicType, Get, MatchEntry, MeEvents, MeMemory, MeOptions, Ni, Outcome, Put,
};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

use super::entry::{atomic_on, get_from, pattern, put_to};
use super::puts::LENGTHS;
use super::{End, Md, Peek, Seen, SeenPut, World, theme};

theme! { "process":
    bytes_go_to_and_come_from_addresses(2)
        "In an entry over a process's memory the offset is an address, puts and gets move bytes there, and no other byte changes.";
    target_is_told_of_addresses(2)
        "The target's events give the address as the offset.";
    from_oneself_by_address(1)
        "A rank may put to its own addresses and get from them.";
    what_is_no_memory_is_out_of_range(2)
        "An unmapped address is out of range, the target gets no event, and the entry takes later messages.";
    what_ends_before_the_range_is_out_of_range(2)
        "A range is out of range if only its first part is mapped.";
    what_may_not_be_written_is_read(2)
        "Read-only memory can only be read.";
    a_range_has_its_bounds(2)
        "In an entry over a range of a process's memory the offset counts from the range's start, and anything beyond its end is out of range.";
    atomics_act_on_addresses(2)
        "Atomics of all types act on numbers at addresses, and a misaligned, unmapped or read-only address is out of range.";
}

/// Returns an entry over all memory of the process, for puts and gets of bits 0, with all events.
fn everywhere() -> MatchEntry {
    MatchEntry {
        memory: MeMemory::EVERYTHING,
        match_bits: 0,
        ignore_bits: 0,
        source: None,
        options: MeOptions::PUT | MeOptions::GET | MeOptions::ATOMIC,
        events: MeEvents::all(),
        tag: 77,
    }
}

fn address(memory: &impl Peek) -> u64 {
    memory.extent().0.expose_provenance() as u64
}

/// Some pages, the last of which is inaccessible.
struct Pages {
    base: *mut u8,
    len: usize,
}

const PAGE: usize = 4096;

impl Pages {
    fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        // SAFETY: the call creates a new mapping at an address that the system chooses, so it
        // affects no existing memory.
        let base = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }
        .expect("a few pages");
        let pages = Self {
            base: base.cast(),
            len,
        };
        pages.protect(pages.usable(), PAGE, MprotectFlags::empty());
        pages
    }

    fn usable(&self) -> usize {
        self.len - PAGE
    }

    fn protect(&self, from: usize, len: usize, protection: MprotectFlags) {
        // SAFETY: the range is a part of this value's own mapping, which is accessed only by copy
        // and not during the call.
        unsafe { mprotect(self.base.wrapping_add(from).cast(), len, protection) }
            .expect("our own pages");
    }
}

impl Peek for Pages {
    fn extent(&self) -> (*mut u8, usize) {
        (self.base, self.usable())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: only this value uses the mapping, and the case that used the value has ended.
        let unmapped = unsafe { munmap(self.base.cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

fn bytes_go_to_and_come_from_addresses<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    let largest = w.net(0).reach(1).max_message;
    let target = w.space(1, (1 << 20) + 8192);
    let bytes = pattern(1, 1 << 20);
    let (source, back) = (w.source(0, &bytes), w.space(0, 1 << 20));
    let mut expected = vec![0; target.len];
    for (i, &length) in LENGTHS.iter().enumerate().filter(|(_, l)| **l <= largest) {
        let at = i * 307;
        let put = Put {
            length,
            remote_offset: address(&target) + at as u64,
            ..put_to(1, &source)
        };
        let end = w.put_and_wait(&source, &put);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        expected[at..at + length].copy_from_slice(&bytes[..length]);
        assert!(
            target.bytes() == expected,
            "a put of {length} bytes to offset {at}"
        );
        let get = Get {
            length,
            remote_offset: address(&target) + at as u64,
            ..get_from(1, &back)
        };
        let end = w.get_and_wait(&back, &get);
        assert_eq!((end.outcome, end.length), (Outcome::Done, length));
        assert!(
            back.peek(0, length) == bytes[..length],
            "a get of {length} bytes from offset {at}"
        );
    }
}

fn target_is_told_of_addresses<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    let (target, md) = (w.space(1, 100), w.source(0, &pattern(2, 50)));
    let offset = address(&target) + 7;
    let put = Put {
        remote_offset: offset,
        hdr_data: 5,
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    w.until("the put's event", |w| w.events(1).count() == 1);
    let get = Get {
        remote_offset: offset,
        ..get_from(1, &md)
    };
    assert_eq!(w.get_and_wait(&md, &get).outcome, Outcome::Done);
    w.until("the get's event", |w| w.events(1).count() == 2);
    let puts = w.puts(1);
    let SeenPut {
        tag,
        offset: told,
        length,
        ..
    } = *puts[0];
    assert_eq!((tag, told, length), (77, offset, 50));
    let got = Seen::Get {
        tag: 77,
        source: 0,
        match_bits: 0,
        offset,
        length: 50,
    };
    assert_eq!(w.events(1).last(), Some(&got));
}

fn from_oneself_by_address<N: Ni>(w: &mut World<N>) {
    w.listen(0);
    w.append(0, everywhere());
    for length in [1, 100, 10_000] {
        let bytes = pattern(length as u64, length);
        let (target, md) = (w.space(0, length), w.source(0, &bytes));
        let put = Put {
            remote_offset: address(&target),
            ..put_to(0, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        assert!(target.bytes() == bytes);
        let back = w.space(0, length);
        let get = Get {
            remote_offset: address(&target),
            ..get_from(0, &back)
        };
        assert_eq!(w.get_and_wait(&back, &get).outcome, Outcome::Done);
        assert!(back.bytes() == bytes);
        let nowhere = Get {
            remote_offset: 16,
            ..get_from(0, &back)
        };
        assert_eq!(w.get_and_wait(&back, &nowhere), out_of_range());
    }
}

fn out_of_range() -> End {
    End {
        outcome: Outcome::OutOfRange,
        length: 0,
        value: 0,
    }
}

/// Puts from this descriptor of rank 0 to an address of rank 1, and gets from that address into the
/// descriptor. Both operations must be out of range.
#[track_caller]
fn put_and_get_are_out_of_range<N: Ni>(w: &mut World<N>, md: &Md, remote_offset: u64) {
    let put = Put {
        remote_offset,
        ..put_to(1, md)
    };
    assert_eq!(w.put_and_wait(md, &put), out_of_range());
    let get = Get {
        remote_offset,
        ..get_from(1, md)
    };
    assert_eq!(w.get_and_wait(md, &get), out_of_range());
}

fn what_is_no_memory_is_out_of_range<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    for length in [1, 100, 5000, 50_000] {
        let md = w.source(0, &pattern(4, length));
        for remote_offset in [0, 16, u64::MAX - 20, u64::MAX, 1 << 63] {
            put_and_get_are_out_of_range(w, &md, remote_offset);
        }
        assert_eq!(w.events(1).count(), 0, "no event at the target");
        assert!(md.bytes() == pattern(4, length));
    }
    let (target, md) = (w.space(1, 100), w.source(0, &pattern(5, 100)));
    let put = Put {
        remote_offset: address(&target),
        ..put_to(1, &md)
    };
    assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
    assert!(target.bytes() == pattern(5, 100));
}

fn what_ends_before_the_range_is_out_of_range<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    let pages = Pages::new(31);
    let before = pattern(6, pages.usable());
    pages.poke(0, &before);
    for length in [2, 100, 4096, 60_000] {
        let md = w.source(0, &pattern(7, length));
        let first = pages.usable() - length + 1;
        let remote_offset = address(&pages) + first as u64;
        put_and_get_are_out_of_range(w, &md, remote_offset);
        assert!(
            pages.peek(0, first) == before[..first],
            "a byte before the range changed"
        );
    }
    assert_eq!(w.events(1).count(), 0, "no event at the target");
}

fn what_may_not_be_written_is_read<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    let pages = Pages::new(9);
    let bytes = pattern(8, pages.usable());
    pages.poke(0, &bytes);
    pages.protect(0, pages.usable(), MprotectFlags::READ);
    for length in [1, 100, 30_000] {
        let md = w.source(0, &pattern(9, length));
        let put = Put {
            remote_offset: address(&pages),
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put), out_of_range());
        let get = Get {
            remote_offset: address(&pages),
            ..get_from(1, &md)
        };
        assert_eq!(w.get_and_wait(&md, &get).outcome, Outcome::Done);
        assert!(md.bytes() == bytes[..length]);
    }
    assert!(pages.bytes() == bytes);
}

fn a_range_has_its_bounds<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    let (space, md) = (w.space(1, 300), w.source(0, &pattern(3, 100)));
    let range = MeMemory::Process {
        base: address(&space) + 100,
        len: 150,
    };
    w.append(
        1,
        MatchEntry {
            memory: range,
            ..everywhere()
        },
    );
    let mut expected = vec![0; 300];
    for remote_offset in [51, 150, 151, u64::MAX - 99, u64::MAX] {
        put_and_get_are_out_of_range(w, &md, remote_offset);
    }
    assert!(
        space.bytes() == expected,
        "a byte outside the range changed"
    );
    for remote_offset in [0, 50] {
        let put = Put {
            remote_offset,
            ..put_to(1, &md)
        };
        assert_eq!(w.put_and_wait(&md, &put).outcome, Outcome::Done);
        let at = 100 + remote_offset as usize;
        expected[at..at + 100].copy_from_slice(&pattern(3, 100));
        assert!(space.bytes() == expected, "{remote_offset}");
    }
}

fn atomics_act_on_addresses<N: Ni>(w: &mut World<N>) {
    w.listen(1);
    w.append(1, everywhere());
    let eq = w.completions(0);
    let pages = Pages::new(2);
    let at = |offset: u64, ty| Atomic {
        ty,
        remote_offset: address(&pages) + offset,
        ..atomic_on(1, eq)
    };
    for (number, ty) in (1..).zip(AtomicType::ALL) {
        // The number takes the last bytes of the page.
        let offset = PAGE - ty.size();
        pages.poke(offset, &7u64.to_ne_bytes()[..ty.size()]);
        let set = Atomic {
            op: AtomicOp::Set,
            operand: 9,
            ..at(offset as u64, ty)
        };
        let end = w.atomic_and_wait(0, &set);
        assert_eq!(
            (end.outcome, end.length, end.value),
            (Outcome::Done, ty.size(), 7)
        );
        assert_eq!(
            pages.peek(offset, ty.size()),
            9u64.to_ne_bytes()[..ty.size()]
        );
        let told = Seen::Atomic {
            tag: 77,
            source: 0,
            match_bits: 0,
            offset: set.remote_offset,
        };
        w.until("the event", |w| w.events(1).count() == number);
        assert!(w.events(1).any(|event| *event == told));
    }
    let events = w.events(1).count();
    let before = pages.bytes();
    for ty in AtomicType::ALL {
        for offset in [1, ty.size() as u64 / 2, PAGE as u64] {
            assert_eq!(w.atomic_and_wait(0, &at(offset, ty)), out_of_range());
        }
        for remote_offset in [0, 64, 1 << 63, u64::MAX - 7] {
            let nowhere = Atomic {
                remote_offset,
                ..at(0, ty)
            };
            assert_eq!(w.atomic_and_wait(0, &nowhere), out_of_range());
        }
        pages.protect(0, pages.usable(), MprotectFlags::READ);
        assert_eq!(w.atomic_and_wait(0, &at(0, ty)), out_of_range());
        pages.protect(
            0,
            pages.usable(),
            MprotectFlags::READ | MprotectFlags::WRITE,
        );
    }
    assert!(pages.bytes() == before);
    assert_eq!(w.events(1).count(), events, "no event at the target");
}
