//! What a domain does against its user.

use std::ffi::c_int;

use libfabric_sys::{
    FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_LOCAL, FI_MR_PROV_KEY, FI_MR_VIRT_ADDR,
};

/// How a device goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Calls are answered with `-FI_ENODEV`; what is under way fails with `FI_ECANCELED`, and then the queue stays empty.
    Flushed,
    /// Every call and every read of the queue is answered with `-FI_ENODEV`.
    Gone,
    /// Calls succeed, and nothing ever comes of them.
    Silent,
    /// Every call is answered with `-FI_EAGAIN`, and nothing more comes.
    Stuck,
    /// No call returns.
    Hung,
}

/// What is done with atomics, which the endpoint says that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The call is answered with `-FI_EOPNOTSUPP`.
    Refused,
    /// The operation ends with `FI_EOPNOTSUPP`.
    Failing,
}

/// What a domain does against its user. As text: parts with commas between them.
///
/// | part | |
/// |---|---|
/// | `local`, `virtual`, `allocated`, `provkey`, `endpoint` | the bits of `mr_mode` that are demanded; `virtual` is taken with `provkey` only |
/// | `verbs` | those of verbs and efa: all but `endpoint` |
/// | `cxi` | those of cxi: `allocated`, `provkey`, `endpoint`; an endpoint with registrations can't be closed |
/// | `memlock` | registrations together may have as many bytes as the process may lock (`ulimit -l`), else `-FI_ENOMEM` |
/// | `refuse-own` | memory for this rank's own writes and reads alone is refused with `-FI_ENOMEM` |
/// | `again=N` | of N operations about N - 1 are refused with `-FI_EAGAIN`: drawn, as one of two that take turns could else be refused for ever |
/// | `vanish=N`, `gone=N`, `silent=N`, `stuck=N`, `hang=N` | the device goes at the Nth operation of the process; how: `End` |
/// | `disorder` | receives that complete together do so in reverse |
/// | `spoil=N` | of N messages into buffers for several one is followed by one that was too long (`FI_ETRUNC`), and the buffer stays posted, as with shm |
/// | `sourceless` | a provider that says that it knows the sources of messages, and knows none (`FI_ADDR_NOTAVAIL`), as opx: one with the word behind its own name, too |
/// | `refuse-atomics`, `fail-atomics` | see `Atomics` |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Bits of `mr_mode` that are demanded.
    pub mr_mode: c_int,
    /// An endpoint with registrations can't be closed; otherwise a registration can't that is bound to one which is open.
    pub endpoint_last: bool,
    /// Registrations are limited as `ulimit -l` says.
    pub memlock: bool,
    /// What neither peers reach nor messages use is not registered.
    pub refuse_own: bool,
    /// Of so many operations one is taken.
    pub again: Option<u64>,
    /// After so many operations the device goes.
    pub end: Option<(u64, End)>,
    /// Receives that complete together do so in reverse.
    pub disorder: bool,
    /// After so many messages one is too long.
    pub spoil: Option<u64>,
    /// No message's source is known, and the provider is another.
    pub sourceless: bool,
    /// What is done with atomics.
    pub atomics: Option<Atomics>,
}

impl Faults {
    /// Reads a word. `None`: it means nothing.
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
