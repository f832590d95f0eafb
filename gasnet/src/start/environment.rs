//! Those of GASNet's environment variables that apply to this library. Numbers, sizes and words are
//! read in the same way as by the portable tools. An error names the variable and the value that
//! cannot be read.

use std::ffi::CStr;

use conduit::settings::Settings;

use crate::client::{self, Chosen};
use crate::fault::Refusal;
use crate::tools::number::{NumberError, parse_decimal, parse_integer, parse_yes_no};
use crate::tools::{physical_memory, setting};

/// Reads a variable's value. Returns `None` if the variable is not set or blank.
fn value<T>(
    name: &CStr,
    read: impl Fn(&str) -> Result<T, NumberError>,
) -> Result<Option<T>, Refusal> {
    let Some(text) = setting(name) else {
        return Ok(None);
    };
    let refusal = |error| Refusal::bad(format_args!("{}='{text}' {error}", name.to_string_lossy()));
    read(&text).map(Some).map_err(refusal)
}

/// Reads a yes-or-no variable.
pub(crate) fn yes(name: &CStr, default: bool) -> Result<bool, Refusal> {
    Ok(value(name, parse_yes_no)?.unwrap_or(default))
}

/// The segment limit set by `GASNET_MAX_SEGSIZE`.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Size {
    Bytes(u64),
    /// A fraction of the host's memory.
    Fraction(f64),
}

/// Reads `GASNET_MAX_SEGSIZE` as defined in GASNet's README: an amount of memory, or a fraction of
/// the host's memory, for each process (`/P`, the default) or for the whole host (`/H`). The second
/// result is `true` if the limit is for the whole host.
fn segment_limit(text: &str) -> Result<(Size, bool), NumberError> {
    let text = text.trim();
    let (number, of_host) = match text.rsplit_once('/') {
        Some((number, "P" | "p")) => (number, false),
        Some((number, "H" | "h")) => (number, true),
        Some(_) => return Err(NumberError::NotSize),
        None => (text, false),
    };
    let number = number.trim();
    let is_fraction =
        number.contains('.') && number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let size = if is_fraction {
        let fraction = parse_decimal(number)?;
        if !(fraction > 0.0 && fraction <= 1.0) {
            return Err(NumberError::NotSize);
        }
        Size::Fraction(fraction)
    } else {
        let bytes = parse_integer(number, 1)?;
        Size::Bytes(u64::try_from(bytes).map_err(|_| NumberError::NotSize)?)
    };
    Ok((size, of_host))
}

/// Returns the size of the largest segment of each of `ranks` ranks on a host with `memory` bytes
/// of memory. The size is at least a page; a larger limit than the memory is reduced to the memory.
fn segment_bytes((size, of_host): (Size, bool), ranks: u32, memory: u64) -> usize {
    let bytes = match size {
        Size::Bytes(bytes) => bytes.min(memory),
        Size::Fraction(fraction) => (memory as f64 * fraction) as u64,
    };
    let share = bytes / if of_host { u64::from(ranks.max(1)) } else { 1 };
    let page = rustix::param::page_size();
    usize::try_from(share).unwrap_or(usize::MAX).max(page)
}

/// Returns the segment limit set by `GASNET_MAX_SEGSIZE`, or else by the client.
fn chosen_limit() -> Result<Option<(Size, bool)>, Refusal> {
    if let Some(limit) = value(c"GASNET_MAX_SEGSIZE", segment_limit)? {
        return Ok(Some(limit));
    }
    match client::most_segment() {
        None => Ok(None),
        Some(Chosen::Bytes(bytes)) => Ok(Some((Size::Bytes(bytes), false))),
        Some(Chosen::Text(text)) => segment_limit(&text)
            .map(Some)
            .map_err(|error| Refusal::bad(format_args!("gasnet_max_segsize_str='{text}' {error}"))),
    }
}

/// Applies GASNet's variables, unless one of Conduit's own overrides them. Returns the largest
/// number of ranks in a neighbourhood.
pub(crate) fn adjust(settings: &mut Settings, ranks: u32) -> Result<u32, Refusal> {
    if settings.job.max_segment.is_none()
        && let Some(limit) = chosen_limit()?
    {
        let memory = match physical_memory() {
            0 => u64::MAX,
            bytes => bytes,
        };
        settings.job.max_segment = Some(segment_bytes(limit, ranks, memory));
    }
    let most = value(c"GASNET_SUPERNODE_MAXSIZE", |text| parse_integer(text, 0))?.unwrap_or(0);
    match u32::try_from(most) {
        Ok(0) => Ok(u32::MAX),
        Ok(1) => {
            // Neighbourhoods of one rank share no memory.
            settings.engine.windows = false;
            Ok(1)
        }
        Ok(most) => Ok(most),
        Err(_) if most > 0 => Ok(u32::MAX),
        Err(_) => Err(Refusal::bad(format_args!(
            "GASNET_SUPERNODE_MAXSIZE='{most}' is negative; 0 means no limit"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the limit for 4 ranks on a host with 64 GiB.
    fn bytes(text: &str) -> Result<usize, NumberError> {
        Ok(segment_bytes(segment_limit(text)?, 4, 64 << 30))
    }

    #[test]
    fn segment_sizes() {
        for (text, expected) in [
            ("1048576", 1 << 20),
            ("1MB", 1 << 20),
            ("1.5 GB/P", 3 << 29),
            ("64k", 65_536),
            ("1GB/H", 1 << 28),
            ("0x100000/p", 1 << 20),
            ("0.5/P", 32 << 30),
            ("0.5/H", 8 << 30),
            ("0.5", 32 << 30),
            ("1.0/H", 16 << 30),
            ("100TB/P", 64 << 30),
            ("100TB/H", 16 << 30),
            ("1", 4096),
            ("0", 4096),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        assert_eq!(
            bytes("0.85/H"),
            Ok(((64_u64 << 30) as f64 * 0.85) as usize / 4)
        );
    }

    #[test]
    fn what_is_no_segment_size() {
        for text in [
            "nonsense", "1MB/X", "1MB/", "-1MB", "1.5", "0.0/H", "0.5.5", "1GiB", "/H", "10XB",
        ] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
