//! Processes that use NA, for tests in which processes come and go.
//!
//! `helper na_peer serve INFO` is a server, which prints its address and answers requests until its
//! input ends. If a message has 8 bytes, the server replies with the same bytes and one more. If a
//! message contains a memory handle, the server gets the memory, changes the bytes and puts them
//! back. For each line of input, the server prints the resources in use: peers, operations, bytes
//! of memory, descriptors, and bytes that Rust code has allocated.
//!
//! `helper na_peer call INFO ADDRESS CALLS` makes calls, prints `called`, and exits when its input
//! ends, unless it is killed before that.

use std::io::{BufRead as _, Write as _};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use conduit_tests::na::options;
use na::{Class, Handle, Options, Part, Pending, Rights};

use crate::allocated;

/// The length of a transfer in bytes.
const BYTES: usize = 100_000;

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", info] => serve(info),
        ["call", info, address, calls] => call(info, address, calls),
        _ => bail!("usage: see the source"),
    }
}

/// Returns a channel that gets an item for each line of input and is closed when the input ends.
fn lines() -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            if line.is_err() || sender.send(()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn say(text: &str) -> Result<()> {
    println!("{text}");
    Ok(std::io::stdout().flush()?)
}

/// Returns the number of bytes of memory and the number of descriptors that this process uses.
fn taken() -> Result<(u64, usize)> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = text.split(' ').nth(1).context("pages")?.parse()?;
    let descriptors = std::fs::read_dir("/proc/self/fd")?.count();
    Ok((pages * rustix::param::page_size() as u64, descriptors))
}

/// An answer that the server is giving to a caller.
enum Answer {
    Sending(Pending<Vec<u8>>),
    Getting(Pending<()>, na::Memory, Handle, na::Addr, u32),
    Putting(Pending<()>, na::Memory, na::Addr, u32),
}

fn serve(info: &str) -> Result<()> {
    let class = Class::open(info, &options())?;
    let context = class.context(0)?;
    say(&class.own().to_string())?;
    let lines = lines();
    let mut calls = (0..16)
        .map(|_| context.receive_unexpected())
        .collect::<Result<Vec<_>, _>>()?;
    let mut answers: Vec<Answer> = Vec::new();
    loop {
        context.progress(Duration::from_millis(20));
        context.trigger(usize::MAX);
        for place in &mut calls {
            if place.is_done() {
                let call = std::mem::replace(place, context.receive_unexpected()?).wait()?;
                let answer = match Handle::from_bytes(&call.bytes) {
                    Ok(handle) => {
                        let local = class.register(vec![0; BYTES], Rights::ReadWrite)?;
                        let from = Part {
                            memory: &handle,
                            offset: 0,
                        };
                        let into = Part {
                            memory: &local,
                            offset: 0,
                        };
                        let get = context.get(into, from, BYTES as u64, &call.source)?;
                        Answer::Getting(get, local, handle, call.source, call.tag)
                    }
                    Err(_) => {
                        let bytes = [&call.bytes[..], &[1]].concat();
                        let to = (&call.source, 0);
                        Answer::Sending(context.send_expected(bytes, to, call.tag)?)
                    }
                };
                answers.push(answer);
            }
        }
        // A caller may have ended already. The server ignores errors that follow from that.
        let mut still = Vec::new();
        for answer in answers {
            still.extend(match answer {
                Answer::Sending(sent) if sent.is_done() => {
                    let _ = sent.wait();
                    None
                }
                Answer::Getting(get, local, handle, source, tag) if get.is_done() => {
                    match get.wait() {
                        Err(_) => None,
                        Ok(()) => {
                            let mut bytes = vec![0; BYTES];
                            local.read(0, &mut bytes)?;
                            bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
                            local.write(0, &bytes)?;
                            let from = Part {
                                memory: &local,
                                offset: 0,
                            };
                            let into = Part {
                                memory: &handle,
                                offset: 0,
                            };
                            let put = context.put(from, into, BYTES as u64, &source)?;
                            Some(Answer::Putting(put, local, source, tag))
                        }
                    }
                }
                Answer::Putting(put, local, source, tag) if put.is_done() => {
                    drop(local);
                    match put.wait() {
                        Err(_) => None,
                        Ok(()) => Some(Answer::Sending(context.send_expected(
                            vec![1],
                            (&source, 0),
                            tag,
                        )?)),
                    }
                }
                other => Some(other),
            });
        }
        answers = still;
        match lines.try_recv() {
            Ok(()) => {
                let (peers, operations) = class.counts();
                let (bytes, descriptors) = taken()?;
                // The receives that are always posted are not counted.
                let operations = operations - calls.len();
                let allocated = allocated::bytes();
                say(&format!(
                    "{peers} {operations} {bytes} {descriptors} {allocated}"
                ))?;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn call(info: &str, address: &str, calls: &str) -> Result<()> {
    let options = Options {
        listen: false,
        ..options()
    };
    let class = Class::open(info, &options)?;
    let context = class.context(0)?;
    let server = class.lookup(address)?;
    let calls: u32 = calls.parse()?;
    for tag in 0..calls {
        let answer = context.receive_expected((&server, 0), tag)?;
        if tag % 2 == 0 {
            let question = tag.to_le_bytes().repeat(2);
            context
                .send_unexpected(question.clone(), (&server, 0), tag)?
                .wait()?;
            ensure!(answer.wait()? == [&question[..], &[1]].concat());
        } else {
            let memory = class.register(vec![tag as u8; BYTES], Rights::ReadWrite)?;
            let question = memory.handle()?.to_bytes().to_vec();
            context
                .send_unexpected(question, (&server, 0), tag)?
                .wait()?;
            ensure!(answer.wait()? == [1]);
            let Ok(bytes) = memory.into_vec() else {
                bail!("a transfer of this process still uses the memory");
            };
            ensure!(
                bytes.iter().all(|byte| *byte == !(tag as u8)),
                "the server didn't change the memory"
            );
        }
    }
    say("called")?;
    let lines = lines();
    while !matches!(lines.try_recv(), Err(TryRecvError::Disconnected)) {
        context.progress(Duration::from_millis(20));
    }
    Ok(())
}
