//! The counters of lane events.

use crate::{Action, Message};

/// The counters of a rank's lane events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The number of asks sent.
    pub asks: u64,
    /// The number of offers sent.
    pub offers: u64,
    /// The number of asks and offers denied.
    pub denials: u64,
    /// The number of recalls sent.
    pub recalls: u64,
    /// The number of promotions, which is the number of times that a lane came into use.
    pub promotions: u64,
    /// The number of demotions, which is the number of times that a lane had to be left.
    pub demotions: u64,
}

impl Statistics {
    /// Counts an action.
    pub fn count(&mut self, action: &Action) {
        let counter = match action {
            Action::Open { .. } => &mut self.promotions,
            Action::Drain { .. } => &mut self.demotions,
            Action::Send { message, .. } => match message {
                Message::Ask { .. } => &mut self.asks,
                Message::Offer { .. } => &mut self.offers,
                Message::Denied { .. } => &mut self.denials,
                Message::Recall { .. } => &mut self.recalls,
                Message::Taken { .. } | Message::Returned { .. } => return,
            },
            Action::Connect { .. } | Action::Close { .. } => return,
        };
        *counter += 1;
    }
}
