//! A check of the limits of dynamic credits, which sees only the messages between ranks.

use credits::Tuning;

/// A lender's account of one borrower.
#[derive(Clone, Default)]
struct Account {
    /// The number of credits given in this epoch of the lender.
    given: u32,
    /// Whether the borrower asked for more in this epoch.
    requested: bool,
    /// Whether the borrower had nothing to return in this epoch.
    zero_reply: bool,
    /// The number of credits that the borrower has given back since a message last told it of the
    /// end of an epoch of the lender.
    returned: u32,
    /// Whether a request of the borrower has stalled since that message.
    stalled: bool,
}

#[derive(Clone, Default)]
struct Lender {
    received: u32,
    /// The number of peers that may still be asked because of requests that asked for more.
    wanted: u32,
    /// The total number of requests received.
    all_received: u64,
    /// The value of `all_received` when a peer was last asked.
    asked_at: Option<u64>,
    borrowers: Vec<Account>,
}

/// The accounts of all lenders. Each method panics when its rule is violated.
pub(crate) struct Ledger {
    tuning: Tuning,
    lenders: Vec<Lender>,
}

impl Ledger {
    pub(crate) fn new(ranks: usize, tuning: Tuning) -> Ledger {
        let lender = Lender {
            borrowers: vec![Account::default(); ranks],
            ..Lender::default()
        };
        Ledger {
            tuning,
            lenders: vec![lender; ranks],
        }
    }

    fn account(&mut self, lender: usize, borrower: usize) -> &mut Account {
        &mut self.lenders[lender].borrowers[borrower]
    }

    /// Notes that a message told `borrower` of the end of an epoch of `lender`.
    pub(crate) fn told(&mut self, lender: usize, borrower: usize) {
        let account = self.account(lender, borrower);
        account.returned = 0;
        account.stalled = false;
    }

    pub(crate) fn stalled(&mut self, lender: usize, borrower: usize) {
        self.account(lender, borrower).stalled = true;
    }

    /// Notes that a request was handled. `asks` says whether it asked for more credits. `under_way`
    /// is the number of peers that the lender has asked and that have not answered.
    pub(crate) fn request(&mut self, lender: usize, borrower: usize, asks: bool, under_way: u32) {
        let Lender {
            received,
            wanted,
            all_received,
            borrowers,
            ..
        } = &mut self.lenders[lender];
        *received += 1;
        *all_received += 1;
        if *received == self.tuning.epoch {
            *received = 0;
            for account in borrowers.iter_mut() {
                *account = Account {
                    given: 0,
                    requested: false,
                    zero_reply: false,
                    ..*account
                };
            }
        }
        if asks {
            borrowers[borrower].requested = true;
            *wanted = self.tuning.scavenge.saturating_sub(under_way);
        }
    }

    pub(crate) fn granted(&mut self, lender: usize, borrower: usize, credits: u16) {
        let limit = u32::from(self.tuning.lender_limit);
        let account = self.account(lender, borrower);
        account.given += u32::from(credits);
        assert!(account.given <= limit, "lent more than an epoch's limit");
    }

    pub(crate) fn revoke(&mut self, lender: usize, borrower: usize) {
        assert_ne!(lender, borrower, "asked itself");
        let pace = self.tuning.revokes_per_epoch;
        let Lender {
            wanted,
            all_received,
            asked_at,
            borrowers,
            ..
        } = &mut self.lenders[lender];
        assert!(*wanted > 0, "asked although no request wanted more");
        *wanted -= 1;
        let account = &borrowers[borrower];
        if pace != u32::MAX {
            let apart = asked_at.map_or(u64::MAX, |before| *all_received - before);
            let enough = apart.saturating_mul(pace.into()) >= self.tuning.epoch.into();
            assert!(enough, "asked more peers than the pace allows");
        }
        *asked_at = Some(*all_received);
        assert!(!account.requested, "asked a peer that needs more itself");
        assert!(!account.zero_reply, "asked again a peer that has nothing");
    }

    /// Notes that `borrower` gives back credits.
    pub(crate) fn returns(&mut self, lender: usize, borrower: usize, credits: u16) {
        let limit = u32::from(self.tuning.revoke_limit);
        let account = self.account(lender, borrower);
        account.returned += u32::from(credits);
        assert!(account.returned <= limit, "gave back more than the limit");
        assert!(
            credits == 0 || !account.stalled,
            "gave back after it had stalled"
        );
    }

    /// Notes that the lender has received the credits given back by `borrower`.
    pub(crate) fn returned(&mut self, lender: usize, borrower: usize, credits: u16) {
        if credits == 0 {
            self.account(lender, borrower).zero_reply = true;
        }
    }
}
