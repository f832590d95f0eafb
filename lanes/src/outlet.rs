//! Which way a sender's messages go.

/// Which way a fragment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// By the base path.
    Base,
    /// The announcement of the lane goes by the base path first; then ask again.
    Announce {
        /// The lane's generation.
        generation: u32,
    },
    /// By the lane.
    Lane,
    /// It waits, with all that follow: what is in the lane has to come out first.
    Wait,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Path {
    #[default]
    Base,
    /// The lane is there and is not announced yet.
    Opening(u32),
    Lane,
    Leaving,
}

/// The way of a sender's messages to one peer, so that order is kept when it changes.
///
/// Into the lane: an announcement is the last that goes by the base path, and the receiver looks at
/// the lane only once it has met it; nobody waits. Back: the lane is left when the receiver has
/// taken all that is in it. All fragments of a message go the same way, whatever is decided
/// meanwhile. A message that waits has no way yet: it takes the new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Outlet {
    path: Path,
    /// Within a message of several fragments.
    is_within: bool,
    /// Fragments in the lane that the receiver has not taken.
    outstanding: u32,
}

impl Outlet {
    /// The lane can be used, after [`Action::Open`](crate::Action::Open).
    pub fn open(&mut self, generation: u32) {
        if self.path == Path::Base {
            self.path = Path::Opening(generation);
        }
    }

    /// The lane has to be left, after [`Action::Drain`](crate::Action::Drain).
    pub fn drain(&mut self) {
        self.path = match self.path {
            Path::Base | Path::Opening(_) => Path::Base,
            Path::Lane | Path::Leaving => Path::Leaving,
        };
    }

    /// Which way the next fragment goes; `is_last` of its message. It counts as sent, unless it
    /// waits or has to be announced.
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

    /// The receiver has taken so many more fragments out of the lane.
    pub fn taken(&mut self, fragments: u32) {
        self.outstanding = self.outstanding.saturating_sub(fragments);
    }

    /// Goes back to the base path if the lane is to be left and is empty; then
    /// [`Lanes::drained`](crate::Lanes::drained) is next.
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
