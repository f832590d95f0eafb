//! Checks that a library's constants are those of its assumed version.

use std::ffi::c_int;
use std::thread;
use std::time::{Duration, Instant};

use crate::*;

/// The time that a step may take. A message from an interface to itself takes microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why a library has failed [`Library::self_test`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelfTestError {
    /// The library was built from a source between two versions.
    #[error(
        "{library} was taken for Portals version {version}, but {difference}; the reference \
         library until September 2023, or as of September 2024, is required"
    )]
    OtherConstants {
        /// The loaded library.
        library: String,
        /// The library's assumed version.
        version: Version,
        /// The difference from that version.
        difference: &'static str,
    },
    /// A step has failed.
    #[error("{function} failed in the self-test of {library}: {reason}")]
    Failed {
        /// The loaded library.
        library: String,
        /// The function that failed.
        function: &'static str,
        /// The function's result, or the event that is missing.
        reason: String,
    },
}

/// Runs a function when it goes out of scope.
struct Undo<F: Fn()>(F);

impl<F: Fn()> Drop for Undo<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Library {
    /// Checks that [`Library::version`] is right. The test checks return codes by allocating a
    /// table entry twice. It checks options by a put from the interface to itself, because an entry
    /// with `PTL_ME_MANAGE_LOCAL` has to ignore the put's offset. The test releases everything that
    /// it creates, except three bytes.
    ///
    /// The interface should not send to itself for other purposes. If the reference library is
    /// built with both shared memory and UDP, it crashes when an interface sends to itself after it
    /// has received from itself.
    ///
    /// # Errors
    ///
    /// Returns an error if the library has other constants, a function failed, or a put was not
    /// acknowledged in time.
    ///
    /// # Safety
    ///
    /// `ni` must be an open interface of this library, with matching. If the interface uses logical
    /// addresses, its map must be set.
    pub unsafe fn self_test(&self, ni: ptl_handle_ni_t) -> Result<(), SelfTestError> {
        let constants = self.constants();
        let mut queue = PTL_EQ_NONE;
        // SAFETY: here and below, the caller guarantees that the interface is open, and the
        // pointers are to live local variables.
        let made = unsafe { self.PtlEQAlloc(ni, 16, &mut queue) };
        self.succeeded("PtlEQAlloc", made)?;
        // SAFETY: the queue was just made. Here and below, `Undo` runs after the last use.
        let _queue = Undo(|| _ = unsafe { self.PtlEQFree(queue) });

        let mut index = 0;
        // SAFETY: the interface is open, and the pointers are to live local variables.
        let made = unsafe { self.PtlPTAlloc(ni, 0, PTL_EQ_NONE, PTL_PT_ANY, &mut index) };
        self.succeeded("PtlPTAlloc", made)?;
        // SAFETY: the index was just made, and `Undo` runs after its last use.
        let _index = Undo(|| _ = unsafe { self.PtlPTFree(ni, index) });
        let mut same = 0;
        // SAFETY: the interface is open, and the pointers are to live local variables.
        let made = unsafe { self.PtlPTAlloc(ni, 0, PTL_EQ_NONE, index, &mut same) };
        if made != constants.PTL_PT_IN_USE {
            return Err(self.differs("its return codes have other numbers"));
        }

        let mut own = ptl_process_t::from_rank(0);
        // SAFETY: the interface is open, and the pointers are to live local variables.
        let found = unsafe { self.PtlGetId(ni, &mut own) };
        self.succeeded("PtlGetId", found)?;
        // The memory is never freed, because a library that has not acknowledged a put may still
        // write to it.
        let target = Box::leak(Box::new([0_u8; 2])).as_mut_ptr();
        let source: *mut u8 = Box::leak(Box::new(1));
        let entry = ptl_me_t {
            start: target.cast(),
            length: 2,
            ct_handle: PTL_CT_NONE,
            uid: PTL_UID_ANY,
            options: PTL_ME_OP_PUT | constants.PTL_ME_MANAGE_LOCAL,
            match_id: own,
            match_bits: 0,
            ignore_bits: 0,
            min_free: 0,
        };
        let mut entry_handle = PTL_INVALID_HANDLE;
        let (list, user) = (PTL_PRIORITY_LIST, std::ptr::null_mut());
        // SAFETY: the interface is open, and the pointers are to live local variables. The entry's
        // memory is leaked, so it stays valid.
        let made = unsafe { self.PtlMEAppend(ni, index, &entry, list, user, &mut entry_handle) };
        self.succeeded("PtlMEAppend", made)?;
        let _entry = Undo(|| {
            let end = Instant::now() + PATIENCE;
            // SAFETY: the entry was just appended.
            while unsafe { self.PtlMEUnlink(entry_handle) } == PTL_IN_USE && Instant::now() < end {
                thread::yield_now();
            }
        });

        let memory = ptl_md_t {
            start: source.cast(),
            length: 1,
            options: PTL_MD_EVENT_SEND_DISABLE,
            eq_handle: queue,
            ct_handle: PTL_CT_NONE,
        };
        let mut memory_handle = PTL_INVALID_HANDLE;
        // SAFETY: the interface is open, and the pointers are to live local variables. The
        // descriptor's memory is leaked, so it stays valid.
        let made = unsafe { self.PtlMDBind(ni, &memory, &mut memory_handle) };
        self.succeeded("PtlMDBind", made)?;
        // SAFETY: the descriptor was just bound, and `Undo` runs after its last use.
        let _memory = Undo(|| _ = unsafe { self.PtlMDRelease(memory_handle) });

        let ack = PTL_ACK_REQ;
        // SAFETY: the descriptor and the index belong to the open interface, and the source's
        // memory is leaked, so it stays valid.
        let put = unsafe { self.PtlPut(memory_handle, 0, 1, ack, own, index, 0, 1, user, 0) };
        self.succeeded("PtlPut", put)?;
        let offset = self.acknowledged_offset(queue)?;
        // SAFETY: the put has been acknowledged, so the library no longer writes.
        let landed = unsafe { target.cast::<[u8; 2]>().read_volatile() };
        if offset != 0 || landed != [1, 0] {
            return Err(self.differs("its options have other numbers"));
        }
        Ok(())
    }

    /// Waits for a put's acknowledgement, and returns its offset.
    fn acknowledged_offset(&self, queue: ptl_handle_eq_t) -> Result<ptl_size_t, SelfTestError> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            let mut event = ptl_event_t::default();
            let mut which = 0;
            // SAFETY: `queue` is the open queue that `self_test` has made, and the pointers are to
            // live local variables.
            let polled = unsafe { self.PtlEQPoll(&queue, 1, 100, &mut event, &mut which) };
            if polled == PTL_EQ_EMPTY {
                continue;
            }
            self.succeeded("PtlEQPoll", polled)?;
            if event.ni_fail_type != PTL_NI_OK {
                let reason = format!("an event with failure {}", event.ni_fail_type);
                return Err(self.failed("PtlPut", reason));
            }
            if event.r#type == PTL_EVENT_ACK {
                return Ok(event.remote_offset);
            }
        }
        Err(self.failed("PtlPut", format!("no acknowledgement in {PATIENCE:?}")))
    }

    fn succeeded(&self, function: &'static str, returned: c_int) -> Result<(), SelfTestError> {
        match self.version().return_code(returned) {
            ReturnCode::Ok => Ok(()),
            code => Err(self.failed(function, code.to_string())),
        }
    }

    fn failed(&self, function: &'static str, reason: String) -> SelfTestError {
        SelfTestError::Failed {
            library: self.path().display().to_string(),
            function,
            reason,
        }
    }

    fn differs(&self, difference: &'static str) -> SelfTestError {
        SelfTestError::OtherConstants {
            library: self.path().display().to_string(),
            version: self.version(),
            difference,
        }
    }
}
