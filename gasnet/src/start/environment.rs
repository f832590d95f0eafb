//! GASNet's environment variables, where they mean something here.

use conduit::settings::Settings;

/// A variable that is yes or no, in any of the usual spellings.
pub(crate) fn yes(name: &str, default: bool) -> bool {
    let Ok(value) = std::env::var(name) else {
        return default;
    };
    match value.trim().to_ascii_lowercase().as_str() {
        "" => default,
        "0" | "n" | "no" | "f" | "false" | "off" => false,
        _ => true,
    }
}

/// Bytes per rank of `GASNET_MAX_SEGSIZE`: a number with an optional unit, for each process (`/P`) or for the host
/// (`/H`). Without either it is for each process. Fractions of memory are the default's business.
fn segment_bytes(text: &str, ranks: u32) -> Option<usize> {
    let text = text.trim();
    let (number, share) = match text.rsplit_once('/') {
        Some((number, "P" | "p")) => (number, 1),
        Some((number, "H" | "h")) => (number, ranks),
        Some(_) => return None,
        None => (text, 1),
    };
    let digits = number.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match number[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1u64,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        "T" | "TB" | "TIB" => 1 << 40,
        _ => return None,
    };
    let value: f64 = digits.trim().parse().ok()?;
    let bytes = value * unit as f64 / f64::from(share.max(1));
    // Below a page it is a fraction.
    (bytes.is_finite() && bytes >= 4096.0).then_some(bytes as usize)
}

/// What GASNet's variables say, unless one of Conduit's own says otherwise.
pub(crate) fn adjust(settings: &mut Settings, ranks: u32) {
    if settings.max_segment.is_none()
        && let Ok(text) = std::env::var("GASNET_MAX_SEGSIZE")
    {
        settings.max_segment = segment_bytes(&text, ranks);
    }
    // Ranks that share memory at most one by one don't share it.
    if std::env::var("GASNET_SUPERNODE_MAXSIZE").is_ok_and(|text| text.trim() == "1") {
        settings.windows = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_sizes() {
        for (text, bytes) in [
            ("1048576", Some(1 << 20)),
            ("1MB", Some(1 << 20)),
            ("1.5 GB/P", Some(3 << 29)),
            ("64k", Some(65_536)),
            ("1GiB/H", Some(1 << 28)),
            ("0.85/H", None),
            ("nonsense", None),
            ("1MB/X", None),
            ("", None),
        ] {
            assert_eq!(segment_bytes(text, 4), bytes, "{text}");
        }
    }
}
