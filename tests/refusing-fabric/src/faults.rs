//! The faults of a domain.

use std::ffi::c_int;

use libfabric_sys::{
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR,
};

/// How a device ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Calls return `-FI_ENODEV`; operations in flight fail with `FI_ECANCELED`, and then the queue
    /// stays empty.
    Flushed,
    /// Every call and every read of the queue returns `-FI_ENODEV`.
    Gone,
    /// Calls succeed without any effect.
    Silent,
    /// Every call returns `-FI_EAGAIN`, and no more completions arrive.
    Stuck,
    /// No call returns.
    Hung,
}

/// The fault of atomics, which the endpoint advertises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The call returns `-FI_EOPNOTSUPP`.
    Refused,
    /// The operation fails with `FI_EOPNOTSUPP`.
    Failing,
}

/// The faults of a domain. In text form: parts separated by commas.
///
/// | part | |
/// |---|---|
/// | `local`, `virtual`, `allocated`, `provkey`, `endpoint` | required bits of `mr_mode`; `virtual` is accepted only with `provkey` |
/// | `verbs` | the bits of verbs and efa: all but `endpoint` |
/// | `cxi` | the bits of cxi: `allocated`, `provkey`, `endpoint`; an endpoint with registrations can't be closed |
/// | `memlock` | registrations fail with `-FI_ENOMEM` beyond the bytes that the process may lock (`ulimit -l`) |
/// | `refuse-own` | registrations of memory only for this rank's own writes and reads fail with `-FI_ENOMEM` |
/// | `again=N` | about N - 1 of N operations are refused with `-FI_EAGAIN`; random, because one of two alternating operations could otherwise be refused forever |
/// | `vanish=N`, `gone=N`, `silent=N`, `stuck=N`, `hang=N` | the device ends at the Nth operation of the process, in one of the ways of `End` |
/// | `disorder` | receives that complete together are reversed |
/// | `spoil=N` | after every Nth message in a buffer for several messages one is too long (`FI_ETRUNC`), and the buffer stays posted, as with shm |
/// | `sourceless` | a provider, with the word behind its own name too, that advertises messages' sources but knows none (`FI_ADDR_NOTAVAIL`), as opx |
/// | `refuse-atomics`, `fail-atomics` | see `Atomics` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Required bits of `mr_mode`.
    pub mr_mode: c_int,
    /// Whether an endpoint with registrations can't be closed. Otherwise, a registration bound to
    /// an open endpoint can't be closed.
    pub endpoint_last: bool,
    /// Whether registrations are limited as by `ulimit -l`.
    pub memlock: bool,
    /// Whether memory is refused that neither peers nor messages access.
    pub refuse_own: bool,
    /// One of this many operations is accepted.
    pub again: Option<u64>,
    /// The number of operations after which the device ends, and how.
    pub end: Option<(u64, End)>,
    /// Whether receives that complete together are reversed.
    pub disorder: bool,
    /// After this many messages one is too long.
    pub spoil: Option<u64>,
    /// Whether messages' sources are unknown, on a provider of its own.
    pub sourceless: bool,
    /// The fault of atomics.
    pub atomics: Option<Atomics>,
}

impl Faults {
    /// Parses a word; returns `None` if it is invalid.
    pub fn parse(word: &str) -> Option<Self> {
        let mut faults = Self::default();
        for part in word.split(',') {
            faults.add(part)?;
        }
        let is_whole =
            faults.mr_mode & FI_MR_VIRT_ADDR == 0 || faults.mr_mode & FI_MR_PROV_KEY != 0;
        is_whole.then_some(faults)
    }

    fn add(&mut self, part: &str) -> Option<()> {
        let (name, number) = match part.split_once('=') {
            Some((name, number)) => (name, number.parse().ok().filter(|n| *n > 0)),
            None => (part, None),
        };
        let mode = match name {
            "local" => FI_MR_LOCAL,
            "virtual" => FI_MR_VIRT_ADDR,
            "allocated" => FI_MR_ALLOCATED,
            "provkey" => FI_MR_PROV_KEY,
            "endpoint" => FI_MR_ENDPOINT,
            "verbs" => FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY,
            "cxi" => FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT,
            _ => 0,
        };
        self.mr_mode |= mode;
        let end = |end| number.map(|number| Some((number, end)));
        match name {
            "cxi" => self.endpoint_last = true,
            "memlock" => self.memlock = true,
            "refuse-own" => self.refuse_own = true,
            "disorder" => self.disorder = true,
            "sourceless" => self.sourceless = true,
            "again" => self.again = Some(number?),
            "spoil" => self.spoil = Some(number?),
            "vanish" => self.end = end(End::Flushed)?,
            "gone" => self.end = end(End::Gone)?,
            "silent" => self.end = end(End::Silent)?,
            "stuck" => self.end = end(End::Stuck)?,
            "hang" => self.end = end(End::Hung)?,
            "refuse-atomics" => self.atomics = Some(Atomics::Refused),
            "fail-atomics" => self.atomics = Some(Atomics::Failing),
            _ if mode != 0 => {}
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let faults = Faults::parse("verbs,again=3,vanish=20").unwrap();
        assert_eq!(faults.end, Some((20, End::Flushed)));
        assert_eq!((faults.again, faults.memlock), (Some(3), false));
        assert_eq!(faults.mr_mode & FI_MR_ENDPOINT, 0);
        assert_ne!(faults.mr_mode & FI_MR_LOCAL, 0);
        for nonsense in [
            "", "verb", "again", "again=0", "vanish=x", "virtual", "verbs,",
        ] {
            assert_eq!(Faults::parse(nonsense), None, "{nonsense}");
        }
    }
}
