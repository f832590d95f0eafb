//! Counters of lane events.

use crate::{Action, Message};

/// Counters of a rank's lane events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Lanes asked for.
    pub asks: u64,
    /// Lanes offered.
    pub offers: u64,
    /// Asks and offers denied.
    pub denials: u64,
    /// Lanes recalled.
    pub recalls: u64,
    /// Promotions: lanes that came into use.
    pub promotions: u64,
    /// Demotions: lanes that had to be left.
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
