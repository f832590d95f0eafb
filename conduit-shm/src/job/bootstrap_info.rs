//! The bootstrap information that ranks exchange at start, and the comparison of the settings in
//! it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use conduit_core::ni::Rank;

use super::handover::Address;
use super::layout::VERSION;
use super::{ShmConfig, ShmError};

/// A rank's bootstrap information: lines of the form `name=value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BootstrapInfo {
    /// The address at which the rank hands over its memory.
    pub(super) address: Address,
    pub(super) settings: BTreeMap<String, String>,
}

impl BootstrapInfo {
    pub(super) fn new(address: Address, config: &ShmConfig) -> Self {
        let settings = config.entries().into_iter();
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_string()));
        let version = ("version".to_owned(), VERSION.to_string());
        Self {
            address,
            settings: settings.chain([version]).collect(),
        }
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!("address={}\n", self.address.to_text());
        for (name, value) in &self.settings {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "set.{name}={value}");
        }
        text
    }

    /// Parses the text form. On failure, returns a description of the problem.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let text = str::from_utf8(text).map_err(|e| e.to_string())?;
        let mut lines = BTreeMap::new();
        for line in text.lines() {
            let (name, value) = line
                .split_once('=')
                .ok_or("bootstrap information has a line without '='")?;
            lines.insert(name, value);
        }
        if let Some(error) = lines.get("failed") {
            return Err(format!("the rank could not start: {error}"));
        }
        let address = lines.get("address").copied().unwrap_or_default();
        let settings = lines.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("set.")?;
            Some((name.to_owned(), (*value).to_owned()))
        });
        Ok(Self {
            address: Address::parse(address).ok_or("bootstrap information has no valid address")?,
            settings: settings.collect(),
        })
    }
}

/// Returns an error if a peer's settings differ from this rank's.
pub(super) fn compare(
    rank: Rank,
    ours: &BootstrapInfo,
    peer: Rank,
    theirs: &BootstrapInfo,
) -> Result<(), ShmError> {
    let names = ours.settings.keys().chain(theirs.settings.keys());
    for name in names {
        let of = |info: &BootstrapInfo| info.settings.get(name).cloned();
        if of(ours) != of(theirs) {
            let shown = |info| of(info).unwrap_or_else(|| "missing".to_owned());
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
    use super::*;

    fn card() -> BootstrapInfo {
        let word = "0123456789abcdef";
        let address = Address::parse(&[word; 3].join(".")).unwrap();
        BootstrapInfo::new(address, &ShmConfig::default())
    }

    #[test]
    fn a_card_survives_the_exchange() {
        let info = card();
        assert_eq!(BootstrapInfo::parse(info.to_text().as_bytes()), Ok(info));
    }

    #[test]
    fn a_bad_card_is_an_error() {
        for text in ["", "host", "address=x", "failed=why"] {
            assert!(BootstrapInfo::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(BootstrapInfo::parse(&[0xff, 0xfe]).is_err());
    }

    #[test]
    fn settings_are_compared() {
        let ours = card();
        assert!(compare(0, &ours, 1, &ours).is_ok());
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
