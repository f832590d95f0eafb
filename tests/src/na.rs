//! NA's guarantees, as cases that every network must pass.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use na::raw;
use na::{Class, Context, Error, Handle, Memory, Options, Part, Pending, Rights};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::pace;

/// A network, described by an info string for this host.
#[derive(Debug, Clone, Copy)]
pub struct Net {
    /// The network's name in the names of tests.
    pub name: &'static str,
    /// The info string for a process whose address may be any.
    pub info: &'static str,
    /// A function that returns the info string for an address that [`Addr`](na::Addr) has printed.
    /// `None` if a process can't restart at the same address.
    pub again: Option<fn(&str) -> String>,
}

/// Returns the part of an address that follows the last separator, which is a colon or a slash.
fn last(address: &str, separator: char) -> &str {
    address.rsplit(separator).next().unwrap_or_default()
}

/// All networks that the cases run on.
pub const NETS: [Net; 4] = [
    Net {
        name: "shm",
        info: "conduit+shm",
        // The address holds the user id and a name, joined by a dot. The info string takes only the
        // name.
        again: Some(|address| {
            let name = last(address, '/')
                .split_once('.')
                .map_or("", |(_, name)| name);
            format!("conduit+shm://{name}")
        }),
    },
    Net {
        name: "udp",
        info: "conduit+udp://lo",
        again: Some(|address| format!("conduit+udp://lo:{}", last(address, ':'))),
    },
    Net {
        name: "ofi",
        info: "conduit+ofi://127.0.0.1",
        again: Some(|address| format!("conduit+ofi://127.0.0.1:{}", last(address, ':'))),
    },
    Net {
        name: "conduit",
        info: "conduit+conduit://lo",
        again: None,
    },
];

/// Returns options with which the processes of all tests trust each other.
pub fn options() -> Options {
    Options {
        listen: true,
        auth_key: Some("the tests' key".to_owned()),
        max_contexts: 2,
        ..Options::default()
    }
}

fn open(net: &Net) -> Result<Class> {
    Class::open(net.info, &options()).with_context(|| net.info.to_owned())
}

/// Two processes. The first one has looked up the second.
struct Pair {
    a: Class,
    b: Class,
    at_a: Context,
    at_b: Context,
    to_b: na::Addr,
}

impl Pair {
    fn new(net: &Net) -> Result<Self> {
        let (a, b) = (open(net)?, open(net)?);
        Ok(Self {
            to_b: a.lookup(&b.own().to_string())?,
            at_a: a.context(0)?,
            at_b: b.context(0)?,
            a,
            b,
        })
    }

    /// Makes progress in both processes until an operation is done.
    fn until<T>(&self, pending: Pending<T>) -> Result<T, Error> {
        both(&[&self.at_a, &self.at_b], || pending.is_done());
        pending.wait()
    }

    /// Returns the address by which the second process knows the first one.
    fn greet(&self) -> Result<na::Addr> {
        let message = self.at_b.receive_unexpected()?;
        let sent = self
            .at_a
            .send_unexpected(b"hello".to_vec(), (&self.to_b, 0), 0)?;
        self.until(sent)?;
        Ok(self.until(message)?.source)
    }
}

/// Makes progress in all contexts until `is_over` returns true. Panics after the time that a test
/// may take.
fn both(contexts: &[&Context], is_over: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + pace::HANG;
    while !is_over() {
        assert!(
            std::time::Instant::now() < deadline,
            "no progress within the time limit"
        );
        for context in contexts {
            context.progress(Duration::ZERO);
            context.trigger(usize::MAX);
        }
    }
}

/// A case of the suite. It returns an error or panics if the network fails it.
pub type Case = fn(&Net) -> Result<()>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All cases, with their names.
        pub const CASES: &[(&str, Case)] = &[$((stringify!($name), $name)),*];
    };
}

cases![
    messages_of_all_lengths_arrive,
    expected_messages_match_source_and_tag,
    contexts_are_apart,
    unexpected_messages_wait_for_receives,
    several_messages_go_into_one_buffer,
    a_process_speaks_to_itself,
    transfers_between_any_offsets,
    transfers_of_many_segments,
    rights_and_bounds_are_enforced_at_the_target,
    every_operation_can_be_canceled,
    addresses_are_texts_and_bytes,
    wrong_addresses_and_handles_are_refused,
    two_that_connect_at_once_have_one_session,
    the_descriptor_wakes,
    who_has_left_is_unreachable,
    a_restarted_server_is_found_at_its_address,
    strangers_with_another_key_are_not_heard,
];

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length).map(|at| (at * 7) as u8 ^ seed).collect()
}

fn messages_of_all_lengths_arrive(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    let source = pair.greet()?;
    let longest = pair.a.max_unexpected_size();
    for (tag, length) in (1u32..).zip([0, 1, 100, 700, 768, 1000, longest - 1, longest]) {
        let bytes = pattern(length, tag as u8);
        let message = pair.at_b.receive_unexpected()?;
        let sent = pair
            .at_a
            .send_unexpected(bytes.clone(), (&pair.to_b, 0), tag)?;
        ensure!(
            pair.until(sent)? == bytes,
            "the send returns another buffer"
        );
        let message = pair.until(message)?;
        ensure!((message.bytes == bytes) && message.tag == tag && message.source == source);
        let answer = pair.at_a.receive_expected((&pair.to_b, 0), tag)?;
        let sent = pair.at_b.send_expected(bytes.clone(), (&source, 0), tag)?;
        pair.until(sent)?;
        ensure!(pair.until(answer)? == bytes);
    }
    let too_long = pair
        .at_a
        .send_unexpected(vec![0; longest + 1], (&pair.to_b, 0), 0);
    ensure!(matches!(too_long, Err(Error::TooLong { .. })));
    Ok(())
}

fn expected_messages_match_source_and_tag(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    let source = pair.greet()?;
    // Some messages arrive before their receive is posted and some after it. The tags are used in
    // any order.
    let early: Vec<_> = (0..4)
        .map(|tag| pair.at_b.send_expected(vec![tag as u8], (&source, 0), tag))
        .collect::<Result<_, _>>()?;
    for sent in early {
        pair.until(sent)?;
    }
    let receives: Vec<_> = [3, 5, 0, u32::MAX, 2, 1]
        .into_iter()
        .map(|tag| Ok((tag, pair.at_a.receive_expected((&pair.to_b, 0), tag)?)))
        .collect::<Result<Vec<_>, Error>>()?;
    for tag in [u32::MAX, 5] {
        let sent = pair
            .at_b
            .send_expected(vec![tag as u8], (&source, 0), tag)?;
        pair.until(sent)?;
    }
    for (tag, received) in receives {
        ensure!(pair.until(received)? == [tag as u8], "tag {tag}");
    }
    Ok(())
}

fn contexts_are_apart(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    let second = pair.b.context(1)?;
    let messages = [
        pair.at_b.receive_unexpected()?,
        second.receive_unexpected()?,
    ];
    for (context, tag) in [(1, 11), (0, 10)] {
        let sent = pair
            .at_a
            .send_unexpected(Vec::new(), (&pair.to_b, context), tag)?;
        pair.until(sent)?;
    }
    both(&[&pair.at_a, &pair.at_b, &second], || {
        messages.iter().all(Pending::is_done)
    });
    for (message, tag) in messages.into_iter().zip([10, 11]) {
        ensure!(message.wait()?.tag == tag);
    }
    ensure!(pair.a.context(2).is_err());
    Ok(())
}

fn unexpected_messages_wait_for_receives(net: &Net) -> Result<()> {
    const COUNT: u32 = 500;
    let pair = Pair::new(net)?;
    let sent: Vec<_> = (0..COUNT)
        .map(|tag| {
            let bytes = pattern(tag as usize * 8, tag as u8);
            pair.at_a.send_unexpected(bytes, (&pair.to_b, 0), tag)
        })
        .collect::<Result<_, _>>()?;
    // Nothing is received at first, so the sender holds back the messages for which the receiver
    // has no room.
    for _ in 0..200 {
        both(&[&pair.at_a, &pair.at_b], || true);
        pair.at_a.progress(Duration::ZERO);
        pair.at_b.progress(Duration::ZERO);
    }
    let mut tags = HashSet::new();
    for _ in 0..COUNT {
        let message = pair.at_b.receive_unexpected()?;
        let message = pair.until(message)?;
        ensure!(message.bytes == pattern(message.tag as usize * 8, message.tag as u8));
        ensure!(
            tags.insert(message.tag),
            "tag {} arrived twice",
            message.tag
        );
    }
    for sent in sent {
        pair.until(sent)?;
    }
    Ok(())
}

fn several_messages_go_into_one_buffer(net: &Net) -> Result<()> {
    use std::sync::{Arc, Mutex};
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let seen = Arc::clone(&seen);
        move |completion| {
            seen.lock()
                .unwrap_or_else(|e| e.into_inner())
                .push(completion)
        }
    };
    let receiver = raw::Class::open(net.info, &options(), sink)?;
    let sender = open(net)?;
    let at = sender.context(0)?;
    let to = sender.lookup(&receiver.own().to_string())?;
    let longest = receiver.max_unexpected_size();
    let mut buffer = vec![0u8; longest + 2999];
    // SAFETY: the buffer outlives the operation, which ends before this function returns.
    unsafe { receiver.receive_unexpected(0, 7, (buffer.as_mut_ptr(), buffer.len()), true)? };
    for tag in 0..4 {
        let _sent = at.send_unexpected(pattern(1000, tag as u8), (&to, 0), tag)?;
    }
    let count = || seen.lock().unwrap_or_else(|e| e.into_inner()).len();
    let deadline = std::time::Instant::now() + pace::HANG;
    while count() < 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "no progress within the time limit"
        );
        receiver.progress(0);
        at.progress(Duration::ZERO);
        at.trigger(usize::MAX);
    }
    let seen = std::mem::take(&mut *seen.lock().unwrap_or_else(|e| e.into_inner()));
    for (number, completion) in seen.into_iter().enumerate() {
        ensure!(completion.cookie == 7);
        let Ok(raw::Outcome::Unexpected {
            source,
            tag,
            offset,
            length,
            last,
        }) = completion.result
        else {
            anyhow::bail!("{completion:?}");
        };
        drop(receiver.source(source));
        ensure!(length == 1000 && buffer[offset..][..length] == pattern(1000, tag as u8));
        ensure!(
            last == (number == 2),
            "only after the last message must the room be too small for one of full length"
        );
    }
    receiver.leave();
    Ok(())
}

fn a_process_speaks_to_itself(net: &Net) -> Result<()> {
    let class = open(net)?;
    let at = class.context(0)?;
    let own = class.lookup(&class.own().to_string())?;
    ensure!(own.is_own() && own == class.own());
    let sent = at.send_unexpected(b"me".to_vec(), (&own, 0), 1)?;
    let message = at.receive_unexpected()?.wait()?;
    ensure!(message.bytes == b"me" && message.source.is_own());
    sent.wait()?;
    let received = at.receive_expected((&message.source, 0), 2)?;
    at.send_expected(b"again".to_vec(), (&own, 0), 2)?.wait()?;
    ensure!(received.wait()? == b"again");
    let local = class.register(pattern(5000, 1), Rights::ReadOnly)?;
    let remote = class.register(vec![0; 6000], Rights::ReadWrite)?;
    let handle = remote.handle()?;
    at.put(part(&local, 10), part(&handle, 500), 4000, &own)?
        .wait()?;
    let mut bytes = vec![0; 6000];
    remote.read(0, &mut bytes)?;
    ensure!(bytes[500..4500] == pattern(5000, 1)[10..4010] && bytes[4500..] == [0; 1500]);
    let refused = at.put(part(&remote, 0), part(&local.handle()?, 0), 1, &own);
    ensure!(matches!(refused, Err(Error::Rights(_))));
    Ok(())
}

fn part<M>(memory: M, offset: u64) -> Part<M> {
    Part { memory, offset }
}

fn content(memory: &Memory) -> Result<Vec<u8>> {
    let mut bytes = vec![0; memory.len()];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}

fn transfers_between_any_offsets(net: &Net) -> Result<()> {
    const BYTES: usize = 5 << 20;
    let pair = Pair::new(net)?;
    let source = pair.greet()?;
    let here = pair.a.register(pattern(BYTES, 1), Rights::ReadWrite)?;
    let there = pair.b.register(vec![0; BYTES], Rights::ReadWrite)?;
    let handle = Handle::from_bytes(&there.handle()?.to_bytes())?;
    let mut model = vec![0; BYTES];
    let cases = [
        (0, 0, 0),
        (1, 3, 1),
        (100, 7, 600),
        (5, 4097, 4096),
        (4093, 11, 100_000),
        (0, 0, BYTES),
        (3, 1 << 20, 3 << 20),
    ];
    for (from, to, length) in cases {
        let put = pair.at_a.put(
            part(&here, from as u64),
            part(&handle, to as u64),
            length as u64,
            &pair.to_b,
        )?;
        pair.until(put)?;
        model[to..][..length].copy_from_slice(&pattern(BYTES, 1)[from..][..length]);
        ensure!(content(&there)? == model, "put {from} {to} {length}");
        let into = pair.a.register(vec![9; length], Rights::ReadWrite)?;
        let get = pair.at_a.get(
            part(&into, 0),
            part(&handle, to as u64),
            length as u64,
            &pair.to_b,
        )?;
        pair.until(get)?;
        ensure!(
            content(&into)? == model[to..][..length],
            "get to {to}, {length} bytes"
        );
    }
    // Now the second process gets from the first, several times at once.
    let back = here.handle()?;
    let into = pair.b.register(vec![0; BYTES], Rights::ReadOnly)?;
    let step = BYTES / 8;
    let gets: Vec<_> = (0..8)
        .map(|number| {
            let at = number * step as u64;
            pair.at_b
                .get(part(&into, at), part(&back, at), step as u64, &source)
        })
        .collect::<Result<_, _>>()?;
    for get in gets {
        pair.until(get)?;
    }
    ensure!(content(&into)? == pattern(BYTES, 1));
    Ok(())
}

fn transfers_of_many_segments(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    pair.greet()?;
    let ended = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let sink = {
        let ended = std::sync::Arc::clone(&ended);
        move |completion: raw::Completion| {
            let mut ended = ended.lock().unwrap_or_else(|e| e.into_inner());
            ended.push(completion.result.map(|_| completion.cookie));
        }
    };
    let class = raw::Class::open(net.info, &options(), sink)?;
    let to = class.lookup(&pair.b.own().to_string())?;
    // The segments have many different lengths, including 0.
    let lengths = [0usize, 1, 7000, 0, 33, 200_000, 5, 64 << 10, 4096];
    let mut parts: Vec<Vec<u8>> = (0u8..).zip(lengths).map(|(n, l)| pattern(l, n)).collect();
    let before: Vec<u8> = parts.concat();
    let segments: Vec<_> = parts
        .iter_mut()
        .map(|part| raw::Segment {
            base: part.as_mut_ptr(),
            length: part.len(),
        })
        .collect();
    // SAFETY: `parts` outlives `memory` and is accessed again only after all operations have ended.
    let memory = unsafe { class.memory(&segments, Rights::ReadWrite)? };
    let there = pair
        .b
        .register(vec![0; before.len() + 10], Rights::ReadWrite)?;
    let handle = there.handle()?;
    let (length, mut count) = (before.len() as u64, 0);
    let mut until = |wanted: usize| {
        let deadline = std::time::Instant::now() + pace::HANG;
        while ended.lock().unwrap_or_else(|e| e.into_inner()).len() < wanted {
            assert!(
                std::time::Instant::now() < deadline,
                "no progress within the time limit"
            );
            class.progress(0);
            pair.at_b.progress(Duration::ZERO);
        }
        count = wanted;
    };
    // SAFETY: the segments' memory stays valid and is not accessed until `until` has seen the put
    // end.
    unsafe { class.put(0, 1, part(&memory, 0), part(&handle, 10), length, &to)? };
    until(1);
    ensure!(content(&there)?[10..] == before);
    there.write(0, &pattern(before.len() + 10, 99))?;
    // SAFETY: the segments' memory stays valid and is not accessed until `until` has seen the get
    // end.
    unsafe { class.get(0, 2, part(&memory, 3), part(&handle, 4), length - 3, &to)? };
    until(2);
    let all = ended.lock().unwrap_or_else(|e| e.into_inner()).clone();
    ensure!(all == [Ok(1), Ok(2)], "{all:?}");
    drop(memory);
    class.leave();
    let after = parts.concat();
    ensure!(after[..3] == before[..3]);
    ensure!(after[3..] == pattern(before.len() + 10, 99)[4..before.len() + 1]);
    Ok(())
}

fn rights_and_bounds_are_enforced_at_the_target(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    pair.greet()?;
    for length in [100, 50_000] {
        let here = pair.a.register(vec![7; length], Rights::ReadWrite)?;
        let put = |handle: &Handle| {
            let put = pair
                .at_a
                .put(part(&here, 0), part(handle, 0), length as u64, &pair.to_b);
            put.and_then(|put| pair.until(put))
        };
        let get = |handle: &Handle| {
            let get = pair
                .at_a
                .get(part(&here, 0), part(handle, 0), length as u64, &pair.to_b);
            get.and_then(|get| pair.until(get))
        };
        for rights in [Rights::ReadOnly, Rights::WriteOnly] {
            let there = pair.b.register(vec![1; length], rights)?;
            let honest = there.handle()?;
            // The target checks rights against its own record and ignores the rights in the handle.
            let mut forged = honest.to_bytes();
            forged[1] = 3;
            let forged = Handle::from_bytes(&forged)?;
            for handle in [&honest, &forged] {
                let results = [put(handle), get(handle)];
                let refused = usize::from(rights == Rights::WriteOnly);
                ensure!(
                    matches!(results[refused], Err(Error::Rights(_))),
                    "{results:?}"
                );
                ensure!(results[1 - refused].is_ok(), "{results:?}");
            }
        }
        let there = pair.b.register(vec![1; length], Rights::ReadWrite)?;
        let honest = there.handle()?;
        let mut longer = honest.to_bytes();
        longer[14..].copy_from_slice(&(1u64 << 40).to_le_bytes());
        let longer = Handle::from_bytes(&longer)?;
        let beyond = pair
            .at_a
            .put(part(&here, 0), part(&longer, 1), length as u64, &pair.to_b)?;
        ensure!(matches!(pair.until(beyond), Err(Error::Invalid(_))));
        let here_too = pair
            .at_a
            .put(part(&here, 1), part(&longer, 0), length as u64, &pair.to_b);
        ensure!(matches!(here_too, Err(Error::OutOfBounds { .. })));
        // The next handles are refused: that of another process, a forged one, and one whose memory
        // was taken back.
        ensure!(put(&here.handle()?) == Err(Error::NoSuchMemory));
        let mut forged = honest.to_bytes();
        forged[8] ^= 1;
        ensure!(get(&Handle::from_bytes(&forged)?) == Err(Error::NoSuchMemory));
        ensure!(content(&there)? == vec![1; length]);
        let Ok(bytes) = there.into_vec() else {
            anyhow::bail!("a transfer of this process still uses the memory");
        };
        ensure!(bytes == vec![1; length]);
        ensure!(put(&honest) == Err(Error::NoSuchMemory));
        ensure!(get(&honest) == Err(Error::NoSuchMemory));
    }
    Ok(())
}

fn every_operation_can_be_canceled(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    pair.greet()?;
    let memory = pair.a.register(vec![7; 32 << 20], Rights::ReadWrite)?;
    let there = pair.b.register(vec![1; 32 << 20], Rights::ReadWrite)?;
    let handle = there.handle()?;
    let all = (part(&memory, 0), part(&handle, 0), 32 << 20);
    let unexpected = pair.at_a.receive_unexpected()?;
    let expected = pair.at_a.receive_expected((&pair.to_b, 0), 5)?;
    let put = pair.at_a.put(all.0, all.1, all.2, &pair.to_b)?;
    let get = pair.at_a.get(all.0, all.1, all.2, &pair.to_b)?;
    // Messages for which no receive is posted wait for credits.
    let sent: Vec<_> = (0..200)
        .map(|tag| {
            pair.at_a
                .send_unexpected(vec![0; 1000], (&pair.to_b, 0), tag)
        })
        .collect::<Result<_, _>>()?;
    unexpected.cancel();
    expected.cancel();
    put.cancel();
    get.cancel();
    for sent in &sent {
        sent.cancel();
    }
    ensure!(matches!(pair.until(unexpected), Err(Error::Canceled)));
    ensure!(matches!(pair.until(expected), Err(Error::Canceled)));
    ensure!(matches!(pair.until(put), Ok(()) | Err(Error::Canceled)));
    ensure!(matches!(pair.until(get), Ok(()) | Err(Error::Canceled)));
    let mut canceled = 0;
    for sent in sent {
        match pair.until(sent) {
            Ok(_) => {}
            Err(Error::Canceled) => canceled += 1,
            Err(error) => return Err(error.into()),
        }
    }
    ensure!(canceled > 0);
    // The session works after the cancellations.
    let put = pair.at_a.put(all.0, all.1, all.2, &pair.to_b)?;
    pair.until(put)?;
    ensure!(content(&there)? == vec![7; 32 << 20]);
    let done = pair.at_a.put(all.0, all.1, 10, &pair.to_b)?;
    both(&[&pair.at_a, &pair.at_b], || done.is_done());
    done.cancel();
    ensure!(
        done.wait() == Ok(()),
        "cancelling a finished operation had an effect"
    );
    Ok(())
}

fn addresses_are_texts_and_bytes(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    let text = pair.b.own().to_string();
    ensure!(pair.to_b.to_string() == text, "{} {text}", pair.to_b);
    ensure!(pair.a.lookup(&format!("conduit+{text}"))? == pair.to_b);
    let bytes = pair.b.own().to_bytes();
    ensure!(pair.to_b.to_bytes() == bytes && pair.a.address_of_bytes(&bytes)? == pair.to_b);
    ensure!(pair.to_b.clone() == pair.to_b && pair.to_b != pair.a.own());
    ensure!(!pair.to_b.is_own() && pair.a.own().is_own());
    // The sender's address equals the address that a lookup returns.
    let source = pair.greet()?;
    ensure!(source == pair.b.lookup(&pair.a.own().to_string())?);
    Ok(())
}

fn wrong_addresses_and_handles_are_refused(net: &Net) -> Result<()> {
    let class = open(net)?;
    let own = class.own().to_string();
    let cut = &own[..own.len().saturating_sub(own.len() / 2)];
    for name in [
        "",
        "nonsense",
        "tcp://127.0.0.1:1",
        cut,
        "udp://",
        "shm://x/y",
        "ofi://",
        "\u{1f980}",
    ] {
        let found = class.lookup(name);
        ensure!(found.is_err(), "{name}: {found:?}");
    }
    let bytes = class.own().to_bytes();
    for cut in 0..bytes.len() {
        // Some prefixes of an address are valid addresses of other processes. On the network
        // `conduit`, an address has two parts, of which the first alone still names this process.
        if let Ok(found) = class.address_of_bytes(&bytes[..cut]) {
            ensure!(!found.is_own() || net.name == "conduit");
        }
    }
    for wrong in [
        &[][..],
        &[1; 21],
        &[9; 22],
        &[
            1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ],
    ] {
        ensure!(Handle::from_bytes(wrong).is_err());
    }
    for info in [
        "conduit+tcp",
        "conduit+udp://no-such-interface",
        "conduit+udp:lo",
        "conduit+shm:///",
    ] {
        let opened = Class::open(info, &options());
        ensure!(opened.is_err(), "{info}");
    }
    Ok(())
}

fn two_that_connect_at_once_have_one_session(net: &Net) -> Result<()> {
    for _ in 0..5 {
        let pair = Pair::new(net)?;
        let to_a = pair.b.lookup(&pair.a.own().to_string())?;
        let messages = [
            pair.at_a.receive_unexpected()?,
            pair.at_b.receive_unexpected()?,
        ];
        let sent = [
            pair.at_a
                .send_unexpected(b"a".to_vec(), (&pair.to_b, 0), 1)?,
            pair.at_b.send_unexpected(b"b".to_vec(), (&to_a, 0), 2)?,
        ];
        for sent in sent {
            pair.until(sent)?;
        }
        let [at_a, at_b] = messages.map(|message| pair.until(message));
        let (at_a, at_b) = (at_a?, at_b?);
        ensure!(at_a.bytes == b"b" && at_a.source == pair.to_b);
        ensure!(at_b.bytes == b"a" && at_b.source == to_a);
    }
    Ok(())
}

/// Returns whether a context's descriptor becomes readable within `limit`.
fn is_readable(context: &Context, limit: Duration) -> Result<bool> {
    let descriptor = context.descriptor().context("it is not busy")?;
    let limit = Timespec::try_from(limit)?;
    Ok(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit))? > 0)
}

fn the_descriptor_wakes(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    let source = pair.greet()?;
    // A message from a peer wakes a sleeping process.
    for round in 0..20 {
        let message = pair.at_b.receive_unexpected()?;
        let sleeper = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| -> Result<()> {
                let deadline = std::time::Instant::now() + pace::HANG;
                while !message.is_done() {
                    ensure!(
                        std::time::Instant::now() < deadline,
                        "the sleeper didn't wake"
                    );
                    if pair.at_b.prepare_sleep() {
                        is_readable(&pair.at_b, pace::HANG)?;
                    }
                    pair.at_b.progress(Duration::ZERO);
                    pair.at_b.trigger(usize::MAX);
                }
                Ok(())
            });
            let sent = pair.at_a.send_unexpected(vec![round], (&pair.to_b, 0), 0)?;
            sent.wait()?;
            // The sender keeps polling, because it must handle acknowledgements and timers.
            while !sleeper.is_finished() {
                pair.at_a.progress(Duration::from_millis(1));
            }
            sleeper
                .join()
                .map_err(|_| anyhow::anyhow!("the sleeper panicked"))?
        });
        sleeper?;
        ensure!(message.wait()?.bytes == [round]);
    }
    // An operation that ends in a call of another thread also wakes a sleeping process.
    while !pair.at_b.prepare_sleep() {
        pair.at_b.progress(Duration::ZERO);
    }
    let canceled = pair.at_b.receive_expected((&source, 0), 1)?;
    canceled.cancel();
    ensure!(is_readable(&pair.at_b, pace::HANG)?);
    ensure!(matches!(canceled.wait(), Err(Error::Canceled)));
    Ok(())
}

fn who_has_left_is_unreachable(net: &Net) -> Result<()> {
    let pair = Pair::new(net)?;
    pair.greet()?;
    let Pair {
        a,
        b,
        at_a,
        at_b,
        to_b,
    } = pair;
    let expected = at_a.receive_expected((&to_b, 0), 1)?;
    drop((b, at_b));
    both(&[&at_a], || expected.is_done());
    ensure!(matches!(expected.wait(), Err(Error::Unreachable(_))));
    let sent = at_a.send_unexpected(vec![1], (&to_b, 0), 1)?;
    both(&[&at_a], || sent.is_done());
    ensure!(matches!(sent.wait(), Err(Error::Unreachable(_))));
    drop(to_b);
    both(&[&at_a], || a.counts() == (0, 0));
    Ok(())
}

fn a_restarted_server_is_found_at_its_address(net: &Net) -> Result<()> {
    let Some(again) = net.again else {
        return Ok(());
    };
    let client = open(net)?;
    let at = client.context(0)?;
    let mut server = Class::open(net.info, &options())?;
    let name = server.own().to_string();
    let to = client.lookup(&name)?;
    let mut stale: Option<Handle> = None;
    for round in 0..4u8 {
        let at_server = server.context(0)?;
        let message = at_server.receive_unexpected()?;
        let sent = at.send_unexpected(vec![round], (&to, 0), 0)?;
        both(&[&at, &at_server], || sent.is_done() && message.is_done());
        ensure!(message.wait()?.bytes == [round]);
        sent.wait()?;
        // A handle to memory of the server's predecessor gives no access to the server's memory.
        let memory = server.register(vec![1; 10], Rights::ReadWrite)?;
        let local = client.register(vec![2; 10], Rights::ReadWrite)?;
        if let Some(stale) = &stale {
            let put = at.put(part(&local, 0), part(stale, 0), 10, &to)?;
            both(&[&at, &at_server], || put.is_done());
            ensure!(put.wait() == Err(Error::NoSuchMemory));
        }
        stale = Some(memory.handle()?);
        let answer = at.receive_expected((&to, 0), 1)?;
        drop((memory, at_server, server));
        // Messages to a process that has ended are lost until the sender notices the end. Here it
        // notices through the receive, so the next round's message isn't lost.
        both(&[&at], || answer.is_done());
        ensure!(matches!(answer.wait(), Err(Error::Unreachable(_))));
        server = Class::open(&again(&name), &options())?;
        ensure!(server.own().to_string() == name, "{} {name}", server.own());
    }
    Ok(())
}

fn strangers_with_another_key_are_not_heard(net: &Net) -> Result<()> {
    if net.info.contains("shm") || net.name == "conduit" {
        // These networks identify a process's user through the system, so they ignore the key.
        return Ok(());
    }
    let server = open(net)?;
    let at_server = server.context(0)?;
    let stranger = Options {
        auth_key: Some("another key".to_owned()),
        ..options()
    };
    let stranger = Class::open(net.info, &stranger)?;
    let at = stranger.context(0)?;
    let to = stranger.lookup(&server.own().to_string())?;
    let sent = at.send_unexpected(vec![1], (&to, 0), 0)?;
    let message = at_server.receive_unexpected()?;
    for _ in 0..2000 {
        at.progress(Duration::ZERO);
        at_server.progress(Duration::ZERO);
        at_server.trigger(usize::MAX);
        ensure!(!message.is_done());
    }
    ensure!(
        server.counts().0 == 0,
        "the server keeps state for a stranger"
    );
    sent.cancel();
    message.cancel();
    Ok(())
}
