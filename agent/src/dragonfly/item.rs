//! The wire format of items, which nodes pass on to each other.

/// The kind of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// Opens a session, for which the sender uses the name `mine`.
    Open,
    /// Accepts a session, for which the sender uses the name `mine` and the receiver the name
    /// `yours`. The fields are used in the same way in [`Data`](ItemKind::Data) and
    /// [`Close`](ItemKind::Close).
    Accept,
    /// Carries a fragment of the session.
    Data,
    /// Ends the session.
    Close,
    /// Reports to a neighbour that the items which the sender was passing on to or from the nodes
    /// `mine..yours` are lost.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item<'a> {
    pub(super) kind: ItemKind,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) mine: u32,
    pub(super) yours: u32,
    pub(super) header: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// The size in bytes of an item without its header and payload.
pub(super) const FIXED: usize = 2 + 1 + 16 + 1;

impl<'a> Item<'a> {
    pub(super) fn encode(&self) -> Vec<u8> {
        let length = FIXED + self.header.len() + self.payload.len();
        let mut bytes = Vec::with_capacity(length);
        // The cast is lossless: only fragments as short as an eager buffer are passed on.
        bytes.extend((length as u16).to_le_bytes());
        bytes.push(match self.kind {
            ItemKind::Open => 1,
            ItemKind::Accept => 2,
            ItemKind::Data => 3,
            ItemKind::Close => 4,
            ItemKind::Lost => 5,
        });
        for number in [self.from, self.to, self.mine, self.yours] {
            bytes.extend(number.to_le_bytes());
        }
        // The cast is lossless: a fragment's header is short.
        bytes.push(self.header.len() as u8);
        bytes.extend(self.header);
        bytes.extend(self.payload);
        bytes
    }

    /// Splits a frame into its first item, that item's bytes, and the rest. Returns `None` if the
    /// item is malformed.
    pub(super) fn split(frame: &'a [u8]) -> Option<(Self, &'a [u8], &'a [u8])> {
        let (length, _) = frame.split_first_chunk()?;
        let (bytes, rest) = frame.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (fixed, content) = bytes.split_first_chunk::<FIXED>()?;
        let kind = match fixed[2] {
            1 => ItemKind::Open,
            2 => ItemKind::Accept,
            3 => ItemKind::Data,
            4 => ItemKind::Close,
            5 => ItemKind::Lost,
            _ => return None,
        };
        let [from, to, mine, yours] = [3, 7, 11, 15].map(|at| {
            let number = [fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]];
            u32::from_le_bytes(number)
        });
        let (header, payload) = content.split_at_checked(fixed[19].into())?;
        let item = Self {
            kind,
            from,
            to,
            mine,
            yours,
            header,
            payload,
        };
        Some((item, bytes, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn items_come_out_as_they_went_in(numbers in any::<[u32; 4]>(), header in prop::collection::vec(any::<u8>(), 0..64), payload in prop::collection::vec(any::<u8>(), 0..2048)) {
            let [from, to, mine, yours] = numbers;
            let item = Item { kind: ItemKind::Data, from, to, mine, yours, header: &header, payload: &payload };
            let mut frame = item.encode();
            let length = frame.len();
            frame.push(7);
            let expected = (item, &frame[..length], &frame[length..]);
            prop_assert_eq!(Item::split(&frame), Some(expected));
        }

        #[test]
        fn nonsense_is_an_item_or_none(frame in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some((_, bytes, rest)) = Item::split(&frame) {
                prop_assert!(bytes.len() >= FIXED && bytes.len() + rest.len() == frame.len());
            }
        }
    }
}
