//! Active messages: the sending of requests and replies, the delivery of messages up to the call of
//! the handler, and the credits that limit messages.
//!
//! | file | subject |
//! |---|---|
//! | `request`, `long`, `prepared`, `reply` | the calls that send |
//! | `replies`, `reserve` | outgoing replies, which never wait |
//! | `arrivals`, `deliver`, `inbox`, `shuffle` | the queues of requests and replies; delivery of one message; the state that requests change; requests held back |
//! | `kind`, `head`, `payload` | parts of messages, and their errors |
//! | `handlers` | the table of handlers |
//! | `flow` | credits, the budget of outstanding requests, returns by counter, statistics |
//!
//! A request takes credits. It also takes a chunk if the target is not mapped. A rank uses about 20
//! bytes of memory for each other rank.

pub(crate) mod arrivals;
pub(crate) mod credits;
pub(crate) mod deliver;
pub(crate) mod flow;
pub(crate) mod handlers;
pub(crate) mod head;
pub(crate) mod inbox;
pub(crate) mod kind;
pub(crate) mod long;
pub(crate) mod payload;
pub(crate) mod prepared;
pub(crate) mod replies;
pub(crate) mod reply;
pub(crate) mod request;
pub(crate) mod reserve;
pub(crate) mod shuffle;
pub(crate) mod start;

pub use self::credits::PeerCredits;
pub use payload::Payload;
pub use prepared::{Prepared, PreparedReply};

use flow::Accounts;
use handlers::Handlers;
use inbox::AmSide;
use kind::MessageKind;
use replies::Replies;

use crate::threads::Mode;

/// The message state of a rank. `H` is the type of its handlers.
pub(crate) struct Messages<M: Mode, H> {
    pub(crate) credits: Accounts<M>,
    pub(crate) replies: Replies<M>,
    /// The state of the request queue. Only one thread at a time uses it.
    pub(crate) arriving: M::Lock<AmSide>,
    /// The kind of the last reply. The lock is held by the thread that polls the queue of replies
    /// and completions.
    pub(crate) last_reply: M::Lock<MessageKind>,
    pub(crate) handlers: Handlers<H>,
    pub(crate) lids: M::Lock<am::lid::LidGenerator>,
}
