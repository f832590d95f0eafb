//! What a rank tells the others at start, and what must be the same on all.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

use conduit_core::ni::Rank;

use super::layout::VERSION;
use super::{ShmConfig, ShmError};

/// What a rank tells the others: `name=value` lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) host: String,
    pub(super) pid: i32,
    /// When the process started, in the kernel's clock ticks: a process that got the same id later differs.
    pub(super) start_time: u64,
    pub(super) fd: i32,
    pub(super) inode: u64,
    pub(super) settings: BTreeMap<String, String>,
}

impl Card {
    pub(super) fn of_this_process(fd: &OwnedFd, config: &ShmConfig) -> std::io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let name = rustix::system::uname();
        let settings = config.entries().into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_string()));
        let version = ("version".to_owned(), VERSION.to_string());
        Ok(Self {
            host: format!("{}/{}", name.nodename().to_string_lossy(), boot.trim()),
            pid,
            start_time: start_time(pid).unwrap_or_default(),
            fd: fd.as_raw_fd(),
            inode: rustix::fs::fstat(fd)?.st_ino,
            settings: settings.chain([version]).collect(),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "host={}\npid={}\nstart={}\nfd={}\ninode={}\n",
            self.host, self.pid, self.start_time, self.fd, self.inode
        );
        for (name, value) in &self.settings {
            // Writing to a string can't fail.
            let _ = writeln!(text, "set.{name}={value}");
        }
        text
    }

    /// The inverse, or what is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(text).map_err(|e| e.to_string())?;
        let mut lines = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once('=').ok_or("a line without '='")?;
            lines.insert(name, value);
        }
        if let Some(error) = lines.get("failed") {
            return Err(format!("it could not start: {error}"));
        }
        let take = |name: &str| lines.get(name).copied().ok_or(format!("no {name}"));
        fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{text} is no number"))
        }
        let settings = lines.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("set.")?;
            Some((name.to_owned(), (*value).to_owned()))
        });
        Ok(Self {
            host: take("host")?.to_owned(),
            pid: number(take("pid")?)?,
            start_time: number(take("start")?)?,
            fd: number(take("fd")?)?,
            inode: number(take("inode")?)?,
            settings: settings.collect(),
        })
    }
}

/// Field 22 of a process's status line; the command's name before it may hold anything.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after) = stat.rsplit_once(')')?;
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Refuses a peer on another host, or with other settings.
pub(super) fn compare(rank: Rank, ours: &Card, peer: Rank, theirs: &Card) -> Result<(), ShmError> {
    if ours.host != theirs.host {
        return Err(ShmError::OtherHost {
            rank,
            ours: ours.host.clone(),
            peer,
            theirs: theirs.host.clone(),
        });
    }
    let names = ours.settings.keys().chain(theirs.settings.keys());
    for name in names {
        let of = |card: &Card| card.settings.get(name).cloned();
        if of(ours) != of(theirs) {
            let shown = |card| of(card).unwrap_or_else(|| "missing".to_owned());
            return Err(ShmError::SettingDiffers {
                setting: name.clone(),
                rank,
                ours: shown(ours),
                peer,
                theirs: shown(theirs),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::layout::Layout;
    use super::super::mapping::create_file;
    use super::*;

    fn card() -> Card {
        let layout = Layout::new(&ShmConfig::default());
        let fd = create_file(&layout).unwrap();
        Card::of_this_process(&fd, &ShmConfig::default()).unwrap()
    }

    #[test]
    fn a_card_survives_the_exchange() {
        let card = card();
        assert_eq!(Card::parse(card.to_text().as_bytes()), Ok(card));
    }

    #[test]
    fn a_bad_card_is_an_error() {
        for text in [
            "",
            "host",
            "host=a\npid=x\nstart=1\nfd=1\ninode=1",
            "failed=why",
        ] {
            assert!(Card::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(Card::parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn hosts_and_settings_are_compared() {
        let ours = card();
        assert!(compare(0, &ours, 1, &ours).is_ok());
        let mut theirs = ours.clone();
        theirs.host = "elsewhere/1".to_owned();
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert!(
            error.contains("rank 0") && error.contains("rank 1 on elsewhere"),
            "{error}"
        );
        let mut theirs = ours.clone();
        theirs
            .settings
            .insert("max_message".to_owned(), "1".to_owned());
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert_eq!(
            error,
            "shm start: max_message is 65536 on rank 0 and 1 on rank 1"
        );
        theirs.settings.remove("max_message");
        let error = compare(0, &ours, 1, &theirs).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
