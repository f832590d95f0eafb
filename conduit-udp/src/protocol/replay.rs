//! Replay protection, which records the packet numbers received from a peer (cf. RFC 4303, 3.4.3).

/// The size of the window of packet numbers. The window ends at the highest number received.
pub(super) const WINDOW: u64 = 1024;
const WORDS: usize = (WINDOW / 64) as usize;

/// The packet numbers received among the last [`WINDOW`].
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// One more than the highest number received.
    end: u64,
    /// A bit for each number, indexed by number modulo the window.
    came: [u64; WORDS],
}

impl Replay {
    /// Creates the window of a peer of which all packets with numbers below `end` may have been
    /// received.
    pub(super) fn resumed(end: u64) -> Self {
        Self {
            end,
            came: [u64::MAX; WORDS],
        }
    }

    /// Returns one more than the highest number received.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns whether a packet with this number is acceptable. The number must not have been
    /// received, and must be recent enough to know that.
    pub(super) fn is_new(&self, number: u64) -> bool {
        if number >= self.end {
            return number != u64::MAX;
        }
        self.end - number <= WINDOW && self.came[word(number)] & bit(number) == 0
    }

    /// Returns the highest number received, or 0 if none has been received.
    pub(super) fn newest(&self) -> u64 {
        self.end.saturating_sub(1)
    }

    /// Records that a packet with this number and a valid tag was received.
    pub(super) fn note(&mut self, number: u64) {
        if number >= self.end {
            let skipped = number - self.end;
            if skipped >= WINDOW {
                self.came = [0; WORDS];
            } else {
                for between in self.end..number {
                    self.came[word(between)] &= !bit(between);
                }
            }
            self.end = number + 1;
        }
        self.came[word(number)] |= bit(number);
    }
}

fn word(number: u64) -> usize {
    (number / 64) as usize % WORDS
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    proptest! {
        #[test]
        fn takes_what_is_in_the_window_and_did_not_come(steps in proptest::collection::vec((any::<bool>(), 0u64..3000), 1..400)) {
            let (mut replay, mut came, mut highest) = (Replay::default(), HashSet::new(), 0u64);
            for (ahead, distance) in steps {
                let number = if ahead { highest + distance % 40 + (distance / 2990) * 2000 } else { highest.saturating_sub(distance) };
                let new = !came.contains(&number) && (number >= highest || highest - number < WINDOW);
                prop_assert_eq!(replay.is_new(number), new, "{} after {}", number, highest);
                if new {
                    replay.note(number);
                    came.insert(number);
                    highest = highest.max(number);
                }
            }
        }
    }

    #[test]
    fn the_last_number_there_is_never_comes() {
        assert!(!Replay::default().is_new(u64::MAX));
    }
}
