//! A key-value service in the style of Mercury: two servers, and clients that come, die and come
//! back. `kv [INFO]` runs all of it on this host, over `conduit+shm` or the network that INFO
//! names.
//!
//! A client first posts a receive for the answer, then sends its question as an unexpected message.
//! A value is transferred as memory: the question carries the memory's handle, and the server gets
//! the value from it or puts the value there.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use na::{Addr, Class, Context, Handle, Options, Part, Rights};

/// The number of keys per client.
const KEYS: u32 = 200;
/// The length of the longest value.
const LONGEST: usize = 100_000;

const STORE: u8 = 1;
const LOAD: u8 = 2;
const STOP: u8 = 3;

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => all("conduit+shm"),
        [info] => all(info),
        ["serve", info] => serve(info),
        ["store", info, ref servers @ ..] => store(info, servers, KEYS),
        // Ends without leaving, like a program with a fault.
        ["die", info, ref servers @ ..] => {
            store(info, servers, KEYS / 2)?;
            std::process::abort()
        }
        ["check", info, ref servers @ ..] => check(info, servers),
        _ => bail!("usage: kv [INFO]"),
    }
}

/// All processes of a service share a key. Shared memory needs no key, because the system there
/// identifies a process's user.
fn options() -> Options {
    Options {
        auth_key: Some("the example's key, readable here by anyone".to_owned()),
        ..Options::default()
    }
}

/// Returns the value that belongs to a key, so that a client can verify what it gets.
fn value(key: u32) -> Vec<u8> {
    let length = key.wrapping_mul(2_654_435_761) as usize % LONGEST;
    (0..length).map(|at| (at as u32 ^ key) as u8).collect()
}

// ---- servers ----

fn serve(info: &str) -> Result<()> {
    let options = Options {
        listen: true,
        ..options()
    };
    let class = Class::open(info, &options)?;
    let context = class.context(0)?;
    println!("{}", class.own());
    let mut values: HashMap<u32, Vec<u8>> = HashMap::new();
    loop {
        let question = context.receive_unexpected()?.wait()?;
        let Some((&kind, rest)) = question.bytes.split_first() else {
            continue;
        };
        if kind == STOP {
            println!("{} keys", values.len());
            return Ok(());
        }
        // A client that disappears during its call or sends an invalid question gets no answer.
        let answer = answer(&class, &context, &mut values, kind, rest, &question.source);
        if let Ok(length) = answer {
            let bytes = length.to_le_bytes().to_vec();
            let to = (&question.source, 0);
            let _ = context.send_expected(bytes, to, question.tag)?.wait();
        }
    }
}

/// Answers a question with the length of the value.
fn answer(
    class: &Class,
    context: &Context,
    values: &mut HashMap<u32, Vec<u8>>,
    kind: u8,
    rest: &[u8],
    client: &Addr,
) -> Result<u64> {
    let (key, handle) = rest.split_first_chunk().context("a key")?;
    let key = u32::from_le_bytes(*key);
    let handle = Handle::from_bytes(handle)?;
    let remote = Part {
        memory: &handle,
        offset: 0,
    };
    if kind == STORE {
        let length = usize::try_from(handle.length())?;
        ensure!(length <= LONGEST);
        let memory = class.register(vec![0; length], Rights::ReadOnly)?;
        let local = Part {
            memory: &memory,
            offset: 0,
        };
        context
            .get(local, remote, handle.length(), client)?
            .wait()?;
        let bytes = memory.into_vec().ok().context("the transfer has ended")?;
        values.insert(key, bytes);
        return Ok(length as u64);
    }
    let value = values.get(&key).context("no such key")?;
    let memory = class.register(value.clone(), Rights::ReadOnly)?;
    let local = Part {
        memory: &memory,
        offset: 0,
    };
    context
        .put(local, remote, value.len() as u64, client)?
        .wait()?;
    Ok(value.len() as u64)
}

// ---- clients ----

struct Client {
    class: Class,
    context: Context,
    servers: Vec<Addr>,
    calls: u32,
}

impl Client {
    fn new(info: &str, servers: &[&str]) -> Result<Self> {
        let class = Class::open(info, &options())?;
        Ok(Self {
            context: class.context(0)?,
            servers: servers
                .iter()
                .map(|name| class.lookup(name))
                .collect::<Result<_, _>>()?,
            class,
            calls: 0,
        })
    }

    /// Asks the server that has this key, providing memory for the value. Returns the value's
    /// length and the memory.
    fn ask(
        &mut self,
        kind: u8,
        key: u32,
        bytes: Vec<u8>,
        rights: Rights,
    ) -> Result<(u64, Vec<u8>)> {
        let server = &self.servers[key as usize % self.servers.len()];
        let tag = self.calls;
        self.calls += 1;
        let memory = self.class.register(bytes, rights)?;
        let mut question = vec![kind];
        question.extend(key.to_le_bytes());
        question.extend(memory.handle()?.to_bytes());
        let answer = self.context.receive_expected((server, 0), tag)?;
        self.context
            .send_unexpected(question, (server, 0), tag)?
            .wait()?;
        let answer = answer.wait()?;
        let length = u64::from_le_bytes(answer[..].try_into().context("a length")?);
        let bytes = memory.into_vec().ok().context("no transfer of its own")?;
        Ok((length, bytes))
    }
}

fn store(info: &str, servers: &[&str], keys: u32) -> Result<()> {
    let mut client = Client::new(info, servers)?;
    for key in 0..keys {
        client.ask(STORE, key, value(key), Rights::ReadOnly)?;
    }
    Ok(())
}

fn check(info: &str, servers: &[&str]) -> Result<()> {
    let mut client = Client::new(info, servers)?;
    for key in 0..KEYS {
        let (length, mut bytes) = client.ask(LOAD, key, vec![0; LONGEST], Rights::WriteOnly)?;
        bytes.truncate(usize::try_from(length)?);
        ensure!(bytes == value(key), "the value of {key}");
    }
    for server in &client.servers {
        let sent = client.context.send_unexpected(vec![STOP], (server, 0), 0)?;
        sent.wait()?;
    }
    Ok(())
}

// ---- all of it ----

/// A child process, killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The process may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn all(info: &str) -> Result<()> {
    let program = std::env::current_exe()?;
    let start = |arguments: &[&str], output: Stdio| -> Result<Process> {
        let child = Command::new(&program)
            .args(arguments)
            .stdout(output)
            .spawn();
        Ok(Process(child?))
    };
    let (mut servers, mut outputs, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..2 {
        let mut server = start(&["serve", info], Stdio::piped())?;
        let mut output = BufReader::new(server.0.stdout.take().context("its output")?);
        let mut name = String::new();
        output.read_line(&mut name)?;
        names.push(name.trim().to_owned());
        servers.push(server);
        outputs.push(output);
    }
    let client = |what: &str| -> Result<bool> {
        let mut arguments = vec![what, info];
        arguments.extend(names.iter().map(String::as_str));
        Ok(start(&arguments, Stdio::inherit())?.0.wait()?.success())
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "two servers: {}", names.join(", "))?;
    for round in 1..=3 {
        ensure!(!client("die")?, "it dies");
        writeln!(out, "client {round} stored {} values, and died", KEYS / 2)?;
    }
    ensure!(client("store")?);
    writeln!(out, "a client came back and stored {KEYS}")?;
    ensure!(client("check")?);
    writeln!(
        out,
        "another client found all of them, and stopped the servers"
    )?;
    for (mut server, mut output) in servers.into_iter().zip(outputs) {
        let mut text = String::new();
        output.read_to_string(&mut text)?;
        ensure!(server.0.wait()?.success());
        writeln!(out, "a server had {}", text.trim())?;
    }
    Ok(())
}
