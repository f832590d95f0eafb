//! Runs in a message: arithmetic progressions of runs of the same length, as variable-length
//! integers (LEB128, signed ones zigzag).
//!
//! | field | when | meaning |
//! |---|---|---|
//! | length × 2 + repeated | always | bytes of a run; whether there are more of it |
//! | distance, signed | always | from the end of the last run before, at first from 0, to the first run |
//! | count | repeated | runs, at least 2 |
//! | stride, signed | repeated | from a run to the next one |
//!
//! So rows of arrays cost the same whatever their length, and scattered runs that are not far apart
//! a few bytes each.

use crate::rma::vis::runs::Run;

/// Most bytes of a group.
const MOST_GROUP: usize = 4 * 10;

/// Runs of the same length at the same distance.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) stride: i64,
    pub(crate) count: u64,
}

/// A message's runs make no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a list of ranges that ends within a number")]
    Cut,
    #[error("a list of ranges with a number of more than 64 bits")]
    TooWide,
    #[error("a list of ranges with an empty one")]
    Empty,
    #[error("a list of ranges, some of them outside of the segment ({own} bytes)")]
    Outside { own: usize },
    #[error("a list of ranges that have not the {data} bytes that it is for")]
    Length { data: usize },
}

fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Writes runs; those that follow one another become one.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    /// The end of the last run that has been written.
    end: u64,
    /// The progression so far; a count of 0: none.
    group: Group,
    /// The last run, which may still grow.
    last: Run,
}

impl Encoder {
    pub(crate) fn clear(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        *self = Self {
            bytes,
            ..Self::default()
        };
        self.bytes.clear();
    }

    /// Most bytes that what has been written will have, with another run.
    #[inline]
    pub(crate) fn most(&self) -> usize {
        self.bytes.len() + 3 * MOST_GROUP
    }

    /// Adds a run, which is not empty.
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        // At first that is an empty one at 0, which one at 0 may well replace.
        if self.last.start.wrapping_add(self.last.len) == run.start {
            self.last.len += run.len;
            return;
        }
        self.commit();
        self.last = run;
    }

    /// The last run is complete.
    #[inline]
    fn commit(&mut self) {
        let (start, len) = (self.last.start as u64, self.last.len as u64);
        if len == 0 {
            return;
        }
        let group = &mut self.group;
        if len == group.len {
            let stride = start.wrapping_sub(group.start) as i64;
            if group.count == 1 {
                group.stride = stride;
            }
            if group.stride.wrapping_mul(group.count as i64) == stride {
                group.count += 1;
                return;
            }
        }
        self.write();
        self.group = Group {
            start,
            len,
            stride: 0,
            count: 1,
        };
    }

    /// The progression is complete.
    fn write(&mut self) {
        let Group {
            start,
            len,
            stride,
            count,
        } = self.group;
        if count == 0 {
            return;
        }
        let distance = start.wrapping_sub(self.end) as i64;
        self.number(len << 1 | u64::from(count > 1));
        self.number(zigzag(distance));
        if count > 1 {
            self.number(count);
            self.number(zigzag(stride));
        }
        self.end = self.group.end();
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// All that has been added.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.commit();
        self.write();
        self.last = Run::default();
        self.group = Group::default();
        &self.bytes
    }
}

impl Group {
    /// The end of its last run.
    fn end(&self) -> u64 {
        let last = self.stride.wrapping_mul(self.count.wrapping_sub(1) as i64);
        self.start.wrapping_add_signed(last).wrapping_add(self.len)
    }

    /// Whether all of its runs lie in `[0, own)`.
    fn is_within(&self, own: usize) -> bool {
        let within = || {
            let last = i128::from(self.stride).checked_mul(i128::from(self.count) - 1)?;
            let first = i128::from(self.start);
            let last = first.checked_add(last)?;
            let end = first.max(last).checked_add(self.len.into())?;
            Some(first.min(last) >= 0 && end <= own as i128)
        };
        within() == Some(true)
    }
}

/// Reads runs.
#[derive(Debug, Clone)]
struct Groups<'a> {
    rest: &'a [u8],
    end: u64,
}

impl<'a> Groups<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            end: 0,
        }
    }

    fn number(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or(Malformed::Cut)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Malformed::TooWide)
    }

    fn group(&mut self) -> Result<Group, Malformed> {
        let head = self.number()?;
        let start = self.end.wrapping_add_signed(unzigzag(self.number()?));
        let (count, stride) = match head & 1 {
            0 => (1, 0),
            _ => (self.number()?, unzigzag(self.number()?)),
        };
        let len = head >> 1;
        if len == 0 || count == 0 {
            return Err(Malformed::Empty);
        }
        let group = Group {
            start,
            len,
            stride,
            count,
        };
        self.end = group.end();
        Ok(group)
    }
}

/// Reads a list of runs that lie in `[0, own)` and have `data` bytes, group by group, each with the
/// place of its bytes in the data.
///
/// Checked one by one, as a list in mapped memory may change under way: what is given to `each` has
/// been checked itself.
pub(crate) fn walk<E: From<Malformed>>(
    list: &[u8],
    own: usize,
    data: usize,
    mut each: impl FnMut(Group, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut at = 0;
    for group in Groups::new(list) {
        let group = group?;
        if !group.is_within(own) {
            return Err(Malformed::Outside { own }.into());
        }
        let bytes = group.len.checked_mul(group.count);
        match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) if bytes <= data - at => {
                each(group, at)?;
                at += bytes;
            }
            _ => return Err(Malformed::Length { data }.into()),
        }
    }
    match at == data {
        true => Ok(()),
        false => Err(Malformed::Length { data }.into()),
    }
}

impl Iterator for Groups<'_> {
    type Item = Result<Group, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let group = self.group();
        if group.is_err() {
            self.rest = &[];
        }
        Some(group)
    }
}
