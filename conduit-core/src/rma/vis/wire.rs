//! The encoding of runs in a message, as arithmetic progressions of runs of equal length. All
//! numbers are variable-length integers (LEB128), and signed numbers are zigzag-encoded.
//!
//! | field | when | meaning |
//! |---|---|---|
//! | length × 2 + repeated | always | bytes per run; whether there are several runs |
//! | distance, signed | always | from the end of the previous run, initially 0, to the first run |
//! | count | repeated | runs, at least 2 |
//! | stride, signed | repeated | from one run to the next |
//!
//! Rows of arrays therefore cost the same whatever their length, and scattered runs that lie close
//! together take a few bytes each.

use crate::rma::vis::runs::Run;

/// Maximum size in bytes of an encoded group.
const MOST_GROUP: usize = 4 * 10;

/// Runs of equal length at equal distances.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) start: u64,
    pub(crate) len: u64,
    pub(crate) stride: i64,
    pub(crate) count: u64,
}

/// A malformed list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("range list ends within a number")]
    Cut,
    #[error("range list contains a number of more than 64 bits")]
    TooWide,
    #[error("range list contains an empty range")]
    Empty,
    #[error("range list exceeds the segment of {own} bytes")]
    Outside { own: usize },
    #[error("range list does not cover exactly {data} bytes")]
    Length { data: usize },
}

fn zigzag(value: i64) -> u64 {
    (value as u64) << 1 ^ (value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// An encoder of runs. It merges adjacent runs.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    bytes: Vec<u8>,
    /// The end of the last run written.
    end: u64,
    /// The current progression. If its count is 0, there is no current progression.
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

    /// Returns the maximum length of the encoding, in bytes, if one more run is added.
    #[inline]
    pub(crate) fn most(&self) -> usize {
        self.bytes.len() + 3 * MOST_GROUP
    }

    /// Adds a run, which must not be empty.
    #[inline]
    pub(crate) fn push(&mut self, run: Run) {
        // Initially the last run is empty and at 0. A run that starts at 0 therefore extends it.
        if self.last.start.wrapping_add(self.last.len) == run.start {
            self.last.len += run.len;
            return;
        }
        self.commit();
        self.last = run;
    }

    /// Adds the last run, which is now complete, to the progression.
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

    /// Writes the progression, which is now complete.
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

    /// Returns the encoding of all runs added.
    pub(crate) fn finish(&mut self) -> &[u8] {
        self.commit();
        self.write();
        self.last = Run::default();
        self.group = Group::default();
        &self.bytes
    }
}

impl Group {
    /// Returns the end of the group's last run.
    fn end(&self) -> u64 {
        let last = self.stride.wrapping_mul(self.count.wrapping_sub(1) as i64);
        self.start.wrapping_add_signed(last).wrapping_add(self.len)
    }

    /// Returns whether all runs of the group lie in `[0, own)`.
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

/// A decoder of runs.
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

/// Decodes a list of runs and passes each group to `each`, with the offset of its bytes in the
/// data. Fails unless all runs lie in `[0, own)` and have `data` bytes in total.
///
/// Groups are checked one by one, because a list in mapped memory may change meanwhile. `each`
/// receives exactly the group that was checked.
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
