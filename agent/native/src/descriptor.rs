//! Descriptors, each of which names a channel anywhere in the job.

use std::fmt;
use std::str::FromStr;

/// The length of a descriptor in bytes.
pub const DESCRIPTOR: usize = 32;

/// The first bytes of every descriptor, which state its type and the version of its layout.
const MAGIC: [u8; 8] = *b"CNDCHAN1";

/// The name of a channel. It consists of the channel's node, the instance of the node's agent that
/// created the channel, and the channel's number in that instance. Any holder of the descriptor can
/// attach to the channel.
///
/// A descriptor is always [`DESCRIPTOR`] bytes long in [binary form](Self::to_bytes). As text it
/// consists of the hexadecimal digits of those bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// The host id of the channel's node.
    pub node: u64,
    /// The number that identifies one of the successive agents of the node.
    pub epoch: u64,
    /// The channel's number, unique within the epoch.
    pub number: u64,
}

/// Malformed bytes or text of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a channel descriptor: expected {DESCRIPTOR} bytes, or twice as many hexadecimal digits, that begin with the version"
)]
pub struct MalformedDescriptor;

impl Descriptor {
    /// Encodes the descriptor as bytes.
    pub fn to_bytes(self) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        let fields = [
            u64::from_le_bytes(MAGIC),
            self.node,
            self.epoch,
            self.number,
        ];
        for (into, field) in bytes.chunks_exact_mut(8).zip(fields) {
            into.copy_from_slice(&field.to_le_bytes());
        }
        bytes
    }

    /// Decodes [bytes](Self::to_bytes).
    ///
    /// # Errors
    /// Returns an error unless the bytes are a descriptor of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedDescriptor> {
        let bytes: &[u8; DESCRIPTOR] = bytes.try_into().map_err(|_| MalformedDescriptor)?;
        let (words, _) = bytes.as_chunks::<8>();
        match *words {
            [MAGIC, node, epoch, number] => Ok(Self {
                node: u64::from_le_bytes(node),
                epoch: u64::from_le_bytes(epoch),
                number: u64::from_le_bytes(number),
            }),
            _ => Err(MalformedDescriptor),
        }
    }
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.to_bytes()))
    }
}

impl FromStr for Descriptor {
    type Err = MalformedDescriptor;

    fn from_str(text: &str) -> Result<Self, MalformedDescriptor> {
        Self::from_bytes(&hex::decode(text).map_err(|_| MalformedDescriptor)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_descriptor_survives_as_bytes_and_text(node: u64, epoch: u64, number: u64) {
            let descriptor = Descriptor { node, epoch, number };
            prop_assert_eq!(Descriptor::from_bytes(&descriptor.to_bytes()), Ok(descriptor));
            prop_assert_eq!(descriptor.to_string().parse(), Ok(descriptor));
        }

        #[test]
        fn anything_else_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..40), text in "\\PC{0,70}") {
            prop_assert_eq!(Descriptor::from_bytes(&bytes), Err(MalformedDescriptor));
            prop_assert_eq!(text.parse::<Descriptor>(), Err(MalformedDescriptor));
        }
    }
}
