//! Reads the memory of another process in the way that a debugger or a core image shows it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result};

/// The length of a pattern in bytes. A pattern is sixteen bytes of a secret, or the hex digits of
/// eight bytes.
const PIECE: usize = 16;

/// A part of a process's memory.
#[derive(Debug)]
pub struct Mapping {
    range: Range<u64>,
    /// Whether this part of memory is left out of core images and zeroed in a child.
    pub guarded: bool,
}

impl Mapping {
    /// Returns the parts of a process's memory that the process can read.
    pub fn all(process: u32) -> Result<Vec<Self>> {
        let text = fs::read_to_string(format!("/proc/{process}/smaps")).context("smaps")?;
        let mut all: Vec<Self> = Vec::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match (words.next().unwrap_or_default(), words.next()) {
                ("VmFlags:", first) => {
                    let flags: Vec<_> = first.into_iter().chain(words).collect();
                    if let Some(last) = all.last_mut() {
                        last.guarded = flags.contains(&"dd") && flags.contains(&"wf");
                        // Device memory is left out, because it holds no data of programs.
                        if !flags.contains(&"rd") || flags.contains(&"io") {
                            all.pop();
                        }
                    }
                }
                (name, _) if !name.ends_with(':') => {
                    let (start, end) = name.split_once('-').context("a range")?;
                    let range = u64::from_str_radix(start, 16)?..u64::from_str_radix(end, 16)?;
                    all.push(Self {
                        range,
                        guarded: false,
                    });
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// Reads the bytes of this part, except for pages that the process has never touched.
    pub fn read(&self, process: u32) -> Result<Vec<u8>> {
        /// The bits of a `pagemap` entry that tell whether its page is in memory or swapped out.
        const THERE: u64 = 0b11 << 62;
        let open = |name| File::open(format!("/proc/{process}/{name}")).context(name);
        let (memory, map) = (open("mem")?, open("pagemap")?);
        let page = rustix::param::page_size() as u64;
        let count = (self.range.end - self.range.start) / page;
        let mut entries = vec![0; 8 * count as usize];
        map.read_exact_at(&mut entries, self.range.start / page * 8)?;
        let mut bytes = Vec::new();
        for (at, entry) in (self.range.start..)
            .step_by(page as usize)
            .zip(entries.chunks(8))
        {
            if u64::from_ne_bytes(entry.try_into()?) & THERE != 0 {
                let from = bytes.len();
                bytes.resize(from + page as usize, 0);
                let read = memory.read_exact_at(&mut bytes[from..], at);
                read.with_context(|| format!("{at:x} of {self:x?}"))?;
            }
        }
        Ok(bytes)
    }
}

/// The patterns to look for, which are all pieces of a secret, both raw and as hex digits.
#[derive(Debug, Default)]
pub struct Patterns {
    pieces: HashSet<[u8; PIECE]>,
    /// Whether a pattern begins with given two bytes, by the value of those bytes.
    begins: Vec<bool>,
}

impl Patterns {
    /// Creates the patterns of a secret, except for pieces that look like zeros or small numbers.
    pub fn of(secret: &[u8]) -> Self {
        let mut patterns = Self {
            begins: vec![false; 1 << 16],
            ..Self::default()
        };
        let dense = |bytes: &&[u8]| {
            let different: HashSet<_> = bytes.iter().collect();
            different.len() > bytes.len() * 5 / 8
        };
        for bytes in secret.windows(PIECE).filter(dense) {
            patterns.add(bytes);
        }
        for bytes in secret.windows(PIECE / 2).filter(dense) {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            patterns.add(digits.as_bytes());
            patterns.add(digits.to_uppercase().as_bytes());
        }
        patterns
    }

    fn add(&mut self, piece: &[u8]) {
        let piece: [u8; PIECE] = piece.try_into().expect("a window has PIECE bytes");
        self.begins[begin(&piece)] = true;
        self.pieces.insert(piece);
    }

    /// Returns the offsets in `bytes` at which patterns begin.
    pub fn found_in(&self, bytes: &[u8]) -> Vec<usize> {
        let windows = bytes.windows(PIECE).enumerate();
        windows
            .filter(|(_, window)| self.begins[begin(window)] && self.pieces.contains(*window))
            .map(|(at, _)| at)
            .collect()
    }
}

fn begin(piece: &[u8]) -> usize {
    usize::from(piece[0]) << 8 | usize::from(piece[1])
}
