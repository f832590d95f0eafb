//! Active messages: requests on their way out, their arrival up to the handler's call, replies, and
//! the credits that bound them.
//!
//! | file | subject |
//! |---|---|
//! | `request`, `long`, `prepared`, `reply` | the calls that send |
//! | `replies`, `reserve` | replies on their way out, which never wait |
//! | `arrivals`, `deliver`, `inbox`, `shuffle` | the queues of requests and replies; one message up to its handler; what requests change; requests held back |
//! | `kind`, `head`, `payload` | parts of messages, and what can be wrong with them |
//! | `handlers` | the table of handlers |
//! | `flow` | credits, the budget of outstanding requests, returns by counter, statistics |
//!
//! A request takes credits, and a chunk where the target is not mapped here. A rank keeps some 20
//! bytes for each other one.

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

/// The messages of a rank, whose handlers are `H`.
pub(crate) struct Messages<M: Mode, H> {
    pub(crate) credits: Accounts<M>,
    pub(crate) replies: Replies<M>,
    /// The request side of the poll; one thread at a time has it.
    pub(crate) arriving: M::Lock<AmSide>,
    /// The kind of the last reply. Held by whoever polls the queue of replies and completions.
    pub(crate) last_reply: M::Lock<MessageKind>,
    pub(crate) handlers: Handlers<H>,
    pub(crate) lids: M::Lock<am::lid::LidGenerator>,
}
