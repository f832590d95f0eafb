//! The faults that a domain can have.

use std::ffi::c_int;

use libfabric_sys::{
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR,
};

/// How a device ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Calls return `-FI_ENODEV`. Operations in flight fail with `FI_ECANCELED`, and after these
    /// failures the queue stays empty.
    Flushed,
    /// Every call and every read of the queue returns `-FI_ENODEV`.
    Gone,
    /// Calls report success but have no effect.
    Silent,
    /// Every call returns `-FI_EAGAIN`, and no more completions are reported.
    Stuck,
    /// No call returns.
    Hung,
}

/// How atomics fail on an endpoint that advertises them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The call that submits the atomic returns `-FI_EOPNOTSUPP`.
    Refused,
    /// The call succeeds, but the operation fails with `FI_EOPNOTSUPP`.
    Failing,
}

/// The faults of a domain. As text, they are parts that are separated by commas.
///
/// | part | effect |
/// |---|---|
/// | `local`, `virtual`, `allocated`, `provkey`, `endpoint` | the domain requires this bit of `mr_mode`; `virtual` must be combined with `provkey` |
/// | `verbs` | the domain requires the bits that verbs and efa require, which are all except `endpoint` |
/// | `cxi` | the bits of cxi: `allocated`, `provkey`, `endpoint`, and an endpoint with registrations can't be closed |
/// | `memlock` | registrations fail with `-FI_ENOMEM` once more bytes would be registered than the process may lock (`ulimit -l`) |
/// | `refuse-own` | registrations fail with `-FI_ENOMEM` if only this rank's own writes and reads use the memory |
/// | `again=N` | about N - 1 of N operations are refused with `-FI_EAGAIN`, at random, because one of two alternating operations could otherwise be refused forever |
/// | `vanish=N`, `gone=N`, `silent=N`, `stuck=N`, `hang=N` | the device ends at the Nth operation of the process, in the corresponding way of `End` |
/// | `disorder` | receives that complete together are reported in reverse order |
/// | `spoil=N` | after every Nth message in a buffer for several messages, the next one is too long (`FI_ETRUNC`) and the buffer stays posted, as with shm |
/// | `sourceless` | the domain has a provider of its own, whose name ends in the word too, and which advertises the sources of messages but knows none (`FI_ADDR_NOTAVAIL`), like opx |
/// | `refuse-atomics`, `fail-atomics` | atomics fail in one of the ways of `Atomics` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The bits of `mr_mode` that the domain requires.
    pub mr_mode: c_int,
    /// Whether an endpoint with registrations can't be closed. Otherwise, a registration bound to
    /// an open endpoint can't be closed.
    pub endpoint_last: bool,
    /// Whether the number of registered bytes is limited to what `ulimit -l` permits to lock.
    pub memlock: bool,
    /// Whether registrations are refused for memory that is accessed neither by peers nor by
    /// messages.
    pub refuse_own: bool,
    /// How many operations there are for each one that is accepted.
    pub again: Option<u64>,
    /// The number of the operation at which the device ends, and how it ends.
    pub end: Option<(u64, End)>,
    /// Whether receives that complete together are reported in reverse order.
    pub disorder: bool,
    /// The number of messages after which one is too long.
    pub spoil: Option<u64>,
    /// Whether the sources of messages are unknown. Such a domain has a provider of its own.
    pub sourceless: bool,
    /// How atomics fail.
    pub atomics: Option<Atomics>,
}

impl Faults {
    /// Parses a word. Returns `None` if the word is invalid.
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
