//! The choice of the path of a sender's messages.

/// The path of a fragment, or the step that the sender must take first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The base path.
    Base,
    /// Send the lane's announcement on the base path first, and then call [`Outlet::route`] again.
    Announce {
        /// The lane's generation.
        generation: u32,
    },
    /// The lane's path.
    Lane,
    /// Wait, and hold back all later fragments, because the lane has to drain first.
    Wait,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Path {
    #[default]
    Base,
    /// The lane is usable but not yet announced.
    Opening(u32),
    Lane,
    Leaving,
}

/// Chooses between the base path and the lane for a sender's messages to one peer, and preserves
/// the messages' order when the path changes.
///
/// On the switch to the lane, an announcement is the last fragment on the base path, and the
/// receiver polls the lane only after it has received the announcement. The sender does not wait.
/// On the switch back to the base path, the sender waits until the receiver has consumed everything
/// in the lane. All fragments of a message take the same path, even if a switch is decided in the
/// meantime. A waiting message is assigned its path only when it is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outlet {
    path: Path,
    /// Whether more fragments of the same message follow the last one sent.
    is_within: bool,
    /// The number of fragments in the lane that the receiver has not consumed.
    outstanding: u32,
}

impl Outlet {
    /// Starts to use the lane. The caller must call this for [`Action::Open`](crate::Action::Open).
    pub fn open(&mut self, generation: u32) {
        if self.path == Path::Base {
            self.path = Path::Opening(generation);
        }
    }

    /// Starts to leave the lane. The caller must call this for
    /// [`Action::Drain`](crate::Action::Drain).
    pub fn drain(&mut self) {
        self.path = match self.path {
            Path::Base | Path::Opening(_) => Path::Base,
            Path::Lane | Path::Leaving => Path::Leaving,
        };
    }

    /// Returns the path of the next fragment. `is_last` says whether it is the last one of its
    /// message. The fragment counts as sent unless the result is [`Route::Wait`] or
    /// [`Route::Announce`].
    pub fn route(&mut self, is_last: bool) -> Route {
        let route = match self.path {
            Path::Base => Route::Base,
            Path::Opening(_) if self.is_within => Route::Base,
            Path::Opening(generation) => {
                self.path = Path::Lane;
                return Route::Announce { generation };
            }
            Path::Leaving if !self.is_within => return Route::Wait,
            Path::Lane | Path::Leaving => {
                self.outstanding += 1;
                Route::Lane
            }
        };
        self.is_within = !is_last;
        route
    }

    /// Records that the receiver has consumed `fragments` more fragments from the lane.
    pub fn taken(&mut self, fragments: u32) {
        self.outstanding = self.outstanding.saturating_sub(fragments);
    }

    /// Switches to the base path if the lane is being left, is empty, and no message is incomplete.
    /// Returns whether the base path is in use. When the result is `true` after a drain, the caller
    /// must call [`Lanes::drained`](crate::Lanes::drained).
    pub fn has_left(&mut self) -> bool {
        let is_done = self.path == Path::Leaving && !self.is_within && self.outstanding == 0;
        if is_done {
            self.path = Path::Base;
        }
        self.path == Path::Base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_has_begun_goes_on_where_it_began() {
        let mut outlet = Outlet::default();
        assert_eq!(outlet.route(false), Route::Base);
        outlet.open(5);
        assert_eq!(outlet.route(false), Route::Base);
        assert_eq!(outlet.route(true), Route::Base);
        assert_eq!(outlet.route(false), Route::Announce { generation: 5 });
        assert_eq!(outlet.route(false), Route::Lane);
        outlet.drain();
        assert_eq!(outlet.route(true), Route::Lane);
        assert_eq!(outlet.route(true), Route::Wait);
        outlet.taken(1);
        assert!(!outlet.has_left());
        outlet.taken(1);
        assert!(outlet.has_left());
        assert_eq!(outlet.route(true), Route::Base);
    }

    #[test]
    fn a_lane_that_was_not_used_is_left_at_once() {
        let mut outlet = Outlet::default();
        assert_eq!(outlet.route(false), Route::Base);
        outlet.open(5);
        outlet.drain();
        assert!(outlet.has_left());
        assert_eq!(outlet.route(true), Route::Base);
    }
}
