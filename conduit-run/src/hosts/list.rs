//! The notations of `--hosts` and of host files: `node`, `node:4`, `node[1-3,07]:2`,
//! `node slots=4 max_slots=8`.

use super::{Host, HostsError, MAX_HOSTS, MAX_SLOTS, Place, join, quoted};

/// What lists accept, for messages.
const NAME: &str = "a host is a name of letters, digits, '.', '-' and '_', or user@name";
const SLOTS: &str = "slots are a number from 1 to 65536, as in node1:4";
const RANGE: &str = "ranges are numbers in brackets, as in node[1-3,07]";
const WORDS: &str = "a line is a host and optionally slots=N and max_slots=N, as in \
    'node1 slots=4 max_slots=8', 'node1:4' or 'node[1-3]'";
const SOME: &str = "at least one host is needed, as in node1,node2:4";
const MANY: &str = "at most 65536 hosts are accepted";

/// The maximum number of brackets in a word.
const MAX_BRACKETS: usize = 8;

/// Parses the hosts of an option or a variable: words of [`parse_file`]'s notation, separated by
/// commas.
pub(crate) fn parse_list(text: &str, source: &str) -> Result<Vec<Host>, HostsError> {
    let place = Place {
        source: source.to_owned(),
        line: None,
    };
    let mut hosts = Vec::new();
    words(text.trim(), &place, &mut hosts)?;
    Ok(join(hosts))
}

/// Parses a host file: a host a line, with its slots in the notation of Open MPI or MPICH, or
/// several hosts in the notation of Slurm. `#` starts a comment.
pub(crate) fn parse_file(text: &str, path: &str) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let place = Place {
            source: path.to_owned(),
            line: Some(number),
        };
        let line = line.split_once('#').map_or(line, |(line, _)| line);
        let mut fields = line.split_ascii_whitespace();
        let Some(word) = fields.next() else { continue };
        let first = hosts.len();
        words(word, &place, &mut hosts)?;
        let new = &mut hosts[first..];
        let (mut has_slots, mut has_most) = (new.iter().any(|host| host.slots.is_some()), false);
        for field in fields {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let twice = match name {
                "slots" => std::mem::replace(&mut has_slots, true),
                "max_slots" | "max-slots" => std::mem::replace(&mut has_most, true),
                _ => {
                    return Err(error(
                        &place,
                        format!("unknown word {}", quoted(field)),
                        WORDS,
                    ));
                }
            };
            if twice {
                let what = format!("{} sets the slots twice", quoted(line.trim()));
                return Err(error(&place, what, WORDS));
            }
            let number = slots(value, field, &place)?;
            for host in new.iter_mut() {
                match name {
                    "slots" => host.slots = Some(number),
                    _ => host.max_slots = Some(number),
                }
            }
        }
        if let Some(host) = new.iter().find(|host| host.max_slots < host.slots)
            && host.max_slots.is_some()
        {
            let what = format!("{} has fewer max_slots than slots", quoted(line.trim()));
            return Err(error(&place, what, WORDS));
        }
    }
    if hosts.is_empty() {
        let place = Place {
            source: path.to_owned(),
            line: None,
        };
        return Err(error(&place, "the file names no host".to_owned(), SOME));
    }
    Ok(join(hosts))
}

fn error(place: &Place, what: String, accepted: &'static str) -> HostsError {
    HostsError {
        place: place.clone(),
        what,
        accepted,
    }
}

/// Parses words that are separated by commas, and appends their hosts.
fn words(text: &str, place: &Place, hosts: &mut Vec<Host>) -> Result<(), HostsError> {
    let mut depth = 0;
    let outside = |letter: char| {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    };
    for word in text.split(outside) {
        if word.is_empty() {
            let what = match text {
                "" => "the list is empty".to_owned(),
                _ => format!("{} contains an empty name", quoted(text)),
            };
            return Err(error(place, what, SOME));
        }
        let mut number = None;
        let mut names = word;
        if let Some((name, count)) = word.rsplit_once(':') {
            names = name;
            number = Some(slots(count, word, place)?);
        }
        expand(names, place, &mut |name| {
            check_name(&name, place)?;
            if hosts.len() >= MAX_HOSTS {
                let what = format!("{} exceeds the number of hosts", quoted(word));
                return Err(error(place, what, MANY));
            }
            hosts.push(Host::new(name, number));
            Ok(())
        })?;
    }
    Ok(())
}

fn slots(count: &str, word: &str, place: &Place) -> Result<usize, HostsError> {
    match count.parse() {
        Ok(count @ 1..=MAX_SLOTS) => Ok(count),
        _ => {
            let what = format!("{} has {} slots", quoted(word), quoted(count));
            Err(error(place, what, SLOTS))
        }
    }
}

/// A name must not look like an option to the remote shell, and no part of it may be special to a
/// shell on the way.
fn check_name(name: &str, place: &Place) -> Result<(), HostsError> {
    let is_part = |c: char| c.is_alphanumeric() || ".-_@%".contains(c);
    let fine = !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(is_part);
    match fine {
        true => Ok(()),
        false => Err(error(
            place,
            format!("{} is not a host", quoted(name)),
            NAME,
        )),
    }
}

/// Calls `take` with each name of `prefix[1-3,07]suffix`, which may contain several brackets.
fn expand(
    word: &str,
    place: &Place,
    take: &mut dyn FnMut(String) -> Result<(), HostsError>,
) -> Result<(), HostsError> {
    let wrong = |what: &str| error(place, format!("{} {what}", quoted(word)), RANGE);
    let Some((prefix, rest)) = word.split_once('[') else {
        if word.contains(']') {
            return Err(wrong("has a ']' without '['"));
        }
        return take(word.to_owned());
    };
    if rest.matches('[').count() >= MAX_BRACKETS {
        return Err(wrong("has more than 8 brackets"));
    }
    let (ranges, suffix) = rest
        .split_once(']')
        .ok_or_else(|| wrong("has a '[' without ']'"))?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse::<u32>().ok().filter(|_| digits);
            number.ok_or_else(|| wrong(&format!("has the bad range {}", quoted(range))))
        };
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(wrong(&format!("has the empty range {}", quoted(range))));
        }
        // `01` means two digits, as does `01-10`; `1-10` has no padding.
        let width = match first.starts_with('0') {
            true => first.len(),
            false => 1,
        };
        for number in from..=to {
            expand(&format!("{prefix}{number:0width$}{suffix}"), place, take)?;
        }
    }
    Ok(())
}
