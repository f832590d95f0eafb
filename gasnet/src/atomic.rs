//! Remote atomics: their domains, and the atomic operations that the headers' inline functions
//! leave to the library.
//!
//! All of the engine's atomic operations are atomic with respect to each other, whichever domain
//! they use. A domain therefore only restricts which operations are allowed.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

use conduit::Rank;
use conduit_core::atomics::AtomicRequest;
use conduit_core::kernel::{Completion, Handle};
use conduit_core::ni::{AtomicOp, AtomicType};
use parking_lot::Mutex;

use crate::abi::Flags;
use crate::event::event;
use crate::fault::{Refusal, fatal, started, sure};
use crate::job::Job;

use crate::request::offset;
use crate::team::{Held, team, team_rank};

/// The codes of `gex_DT_t`, and the engine's types that they stand for.
const TYPES: [(u32, AtomicType); 6] = [
    (0x01, AtomicType::I32),
    (0x02, AtomicType::U32),
    (0x04, AtomicType::I64),
    (0x08, AtomicType::U64),
    (0x10, AtomicType::F32),
    (0x20, AtomicType::F64),
];

/// The codes of `gex_OP_t`: `GET`, and the operations that do not fetch. Shifting the code of such
/// an operation left by `FETCHING` bits gives the code of its fetching form.
mod ops {
    pub(super) const AND: u32 = 1 << 0;
    pub(super) const OR: u32 = 1 << 1;
    pub(super) const XOR: u32 = 1 << 2;
    pub(super) const ADD: u32 = 1 << 3;
    pub(super) const SUB: u32 = 1 << 4;
    pub(super) const MULT: u32 = 1 << 5;
    pub(super) const MIN: u32 = 1 << 6;
    pub(super) const MAX: u32 = 1 << 7;
    pub(super) const INC: u32 = 1 << 8;
    pub(super) const DEC: u32 = 1 << 9;
    pub(super) const SET: u32 = 1 << 10;
    pub(super) const CAS: u32 = 1 << 11;
    pub(super) const FETCHING: u32 = 13;
    pub(super) const GET: u32 = 1 << 25;
    const PLAIN: u32 = (1 << 12) - 1;
    const BITS: u32 = AND | OR | XOR;

    /// Returns all operations that a type supports.
    pub(super) fn of(is_float: bool) -> u32 {
        let plain = if is_float { PLAIN & !BITS } else { PLAIN };
        plain | plain << FETCHING | GET
    }
}

bitflags::bitflags! {
    /// `gex_Flags_t` of domains and their operations.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct DomainFlags: u32 {
        const IMMEDIATE = 1 << 0;
        const RANK_IS_JOBRANK = 1 << 15;
        const MY_RANK = 1 << 24;
        const MY_NBRHD = 1 << 25;
        const ACQ = 1 << 26;
        const REL = 1 << 27;
        const FAVOR_MY_RANK = 1 << 28;
        const FAVOR_MY_NBRHD = 1 << 29;
        const FAVOR_REMOTE = 1 << 30;
    }
}

impl DomainFlags {
    const OF_CREATE: Self = Self::FAVOR_MY_RANK
        .union(Self::FAVOR_MY_NBRHD)
        .union(Self::FAVOR_REMOTE);
}

/// The groups of flags that `gex_AD_Create` accepts; a call may give at most one flag of each
/// group. The first group states what to optimise for; the others state where the addresses at the
/// caller and at the target lie (`GEX_FLAG_{SELF,PEER}_SEG_*`). This library ignores the flags,
/// except that a query returns them to the client.
const CREATION: [u32; 3] = [
    DomainFlags::OF_CREATE.bits(),
    0xf << 5,
    1 << 9 | 1 << 10 | 1 << 13 | 1 << 14,
];

/// A domain: `struct conduit_gex_ad_s`. Its address is its handle. Destroying a domain sets `ty` to
/// 0; the structure is then reused for a domain created later.
#[repr(C)]
#[derive(Default)]
struct Domain {
    /// Nonzero if the headers' inline functions may perform operations on mapped ranks themselves.
    direct: AtomicU32,
    flags: AtomicU32,
    /// The data type, `gex_DT_t`. 0 if this domain has been destroyed.
    ty: AtomicU32,
    operations: AtomicU32,
    team: AtomicPtr<c_void>,
    cdata: AtomicPtr<c_void>,
}

/// All domains created so far, including destroyed ones, which are reused.
static DOMAINS: Mutex<Vec<&'static Domain>> = Mutex::new(Vec::new());

impl Domain {
    fn handle(&'static self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    /// Returns the domain of a handle from C. Ends the job if the handle is not valid. If the
    /// `checks` setting is off, the handle must be null or have been returned by `gex_AD_Create`.
    fn of(call: &str, handle: *const c_void) -> &'static Self {
        let is_one = if Job::of(call).engine().job().settings().checks {
            let all = DOMAINS.lock();
            all.iter().any(|domain| domain.handle() == handle)
        } else {
            !handle.is_null()
        };
        if !is_one {
            fatal(
                call,
                &format_args!("{handle:p} is not a valid atomic domain handle"),
            );
        }
        // SAFETY: the handle is the address of a domain. This has been checked above or, if checks
        // are off, the client guarantees it. Domains are never freed.
        let domain = unsafe { &*handle.cast::<Self>() };
        if domain.ty.load(Relaxed) == 0 {
            fatal(
                call,
                &format_args!("{handle:p} is a destroyed atomic domain"),
            );
        }
        domain
    }
}

/// Returns a description of what is wrong with the arguments of `gex_AD_Create`, or `None` if they
/// are valid.
fn refusal_of(ty: u32, operations: u32, flags: u32) -> Option<String> {
    let Some((_, known)) = TYPES.iter().find(|(code, _)| *code == ty) else {
        return Some(format!("data type {ty:#x} is not supported by atomics"));
    };
    let foreign = operations & !ops::of(known.is_float());
    if operations == 0 || foreign != 0 {
        return Some(format!(
            "operations {operations:#x} are not accepted; unsupported for this type: {foreign:#x}"
        ));
    }
    let known = CREATION.iter().fold(0, |all, group| all | group);
    let mut groups = CREATION.iter();
    if flags & !known != 0 || groups.any(|group| (flags & group).count_ones() > 1) {
        let [favours, own, peers] = CREATION;
        return Some(format!(
            "flags {flags:#x} are not valid: expected at most one each of {favours:#x}, {own:#x} and {peers:#x}"
        ));
    }
    None
}

/// Creates a domain. If the `checks` setting is on (as in debug builds), the call is collective:
/// the ranks wait for each other and check that all of them pass the same arguments.
///
/// # Safety
/// `place` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_AD_Create(
    place: *mut *const c_void,
    handle: *const c_void,
    ty: u32,
    operations: u32,
    flags: u32,
) {
    const CALL: &str = "gex_AD_Create";
    let (job, held) = team(CALL, handle);
    if place.is_null() {
        fatal(CALL, &"the pointer for the domain is null");
    }
    if let Some(reason) = refusal_of(ty, operations, flags) {
        fatal(CALL, &reason);
    }
    if job.engine().job().settings().checks {
        agree(CALL, handle, [ty, operations, flags]);
    }
    let domain = {
        let mut all = DOMAINS.lock();
        let free = all.iter().find(|domain| domain.ty.load(Relaxed) == 0);
        let domain = match free {
            Some(&domain) => domain,
            None => {
                let domain: &'static Domain = Box::leak(Box::default());
                all.push(domain);
                domain
            }
        };
        domain.ty.store(ty, Relaxed);
        domain
    };
    domain.flags.store(flags, Relaxed);
    domain.operations.store(operations, Relaxed);
    domain.team.store(handle.cast_mut(), Relaxed);
    let direct = job.engine().atomics().has_processor_atomics() && matches!(held, Held::Job(_));
    domain.direct.store(direct.into(), Relaxed);
    // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
    unsafe { place.write(domain.handle()) };
}

/// Compares the arguments of all ranks, and ends the job if they differ.
fn agree(call: &'static str, team: *const c_void, arguments: [u32; 3]) {
    // Compute the minimum of each argument and of its complement. The complement of the second
    // minimum is the argument's maximum.
    let mut own = [0; 6];
    own[..3].copy_from_slice(&arguments);
    own[3..].copy_from_slice(&arguments.map(|argument| !argument));
    let least = crate::collective::least(call, team, own);
    let largest = [3, 4, 5].map(|place| !least[place]);
    for (place, what) in ["dt", "ops", "flags"].into_iter().enumerate() {
        if least[place] != largest[place] {
            fatal(
                call,
                &format_args!(
                    "{what} differs between ranks: {:#x} on this rank, {:#x} to {:#x} on all ranks",
                    arguments[place], least[place], largest[place]
                ),
            );
        }
    }
}

/// Destroys a domain. None of its operations may be under way.
#[unsafe(no_mangle)]
extern "C" fn gex_AD_Destroy(handle: *const c_void) {
    let domain = Domain::of("gex_AD_Destroy", handle);
    domain.direct.store(0, Relaxed);
    domain.cdata.store(std::ptr::null_mut(), Relaxed);
    domain.ty.store(0, Relaxed);
}

macro_rules! numbers {
    ($($name:ident($field:ident);)*) => {$(
        /// Returns this field of the domain.
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: *const c_void) -> u32 {
            Domain::of(stringify!($name), handle).$field.load(Relaxed)
        }
    )*};
}

numbers! {
    gex_AD_QueryFlags(flags);
    gex_AD_QueryDT(ty);
    gex_AD_QueryOps(operations);
}

macro_rules! words {
    ($($name:ident($field:ident);)*) => {$(
        /// Returns this field of the domain.
        #[unsafe(no_mangle)]
        extern "C" fn $name(handle: *const c_void) -> *mut c_void {
            Domain::of(stringify!($name), handle).$field.load(Relaxed)
        }
    )*};
}

words! {
    gex_AD_QueryTM(team);
    gex_AD_QueryCData(cdata);
}

/// Stores a word for the client with the domain.
#[unsafe(no_mangle)]
extern "C" fn gex_AD_SetCData(handle: *const c_void, value: *mut c_void) {
    let domain = Domain::of("gex_AD_SetCData", handle);
    domain.cdata.store(value, Relaxed);
}

/// Returns the bits that represent the number 1 in the type.
fn one(ty: AtomicType) -> u64 {
    match ty {
        AtomicType::F32 => 1_f32.to_bits().into(),
        AtomicType::F64 => 1_f64.to_bits(),
        _ => 1,
    }
}

/// Translates an operation to the engine's request, and returns with it whether the operation
/// fetches. Returns `None` if `op` is not the code of a single operation.
fn request(op: u32, ty: AtomicType, first: u64, second: u64) -> Option<(AtomicRequest, bool)> {
    if !op.is_power_of_two() {
        return None;
    }
    let fetches = op == ops::GET || op >> ops::FETCHING != 0;
    let plain = match op {
        ops::GET => op,
        _ if fetches => op >> ops::FETCHING,
        _ => op,
    };
    let (op, operand, comparand) = match plain {
        ops::GET => (AtomicOp::Get, 0, 0),
        ops::ADD => (AtomicOp::Add, first, 0),
        ops::SUB => (AtomicOp::Sub, first, 0),
        ops::MULT => (AtomicOp::Mult, first, 0),
        ops::MIN => (AtomicOp::Min, first, 0),
        ops::MAX => (AtomicOp::Max, first, 0),
        ops::INC => (AtomicOp::Add, one(ty), 0),
        ops::DEC => (AtomicOp::Sub, one(ty), 0),
        ops::AND => (AtomicOp::And, first, 0),
        ops::OR => (AtomicOp::Or, first, 0),
        ops::XOR => (AtomicOp::Xor, first, 0),
        ops::SET => (AtomicOp::Set, first, 0),
        ops::CAS => (AtomicOp::CompareSwap, second, first),
        _ => return None,
    };
    let request = AtomicRequest {
        op,
        ty,
        operand,
        comparand,
    };
    Some((request, fetches))
}

/// An operation requested from C.
#[derive(Clone, Copy)]
struct Operation {
    handle: *const c_void,
    result: *mut c_void,
    rank: Rank,
    remote: *mut c_void,
    op: u32,
    first: u64,
    second: u64,
    ty: u32,
    flags: u32,
}

impl Operation {
    /// Returns the target's rank in the job. If checks are on, ends the job if the rank contradicts
    /// the flags.
    fn target(&self, call: &str, job: &Job, domain: &Domain, flags: DomainFlags) -> Rank {
        let team = domain.team.load(Relaxed);
        let rank = match flags.contains(DomainFlags::RANK_IS_JOBRANK) {
            true => {
                job.check_rank(call, self.rank);
                self.rank
            }
            false => team_rank(call, team, self.rank),
        };
        if job.engine().job().settings().checks {
            if flags.contains(DomainFlags::MY_RANK) && rank != job.rank() {
                fatal(
                    call,
                    &format_args!(
                        "rank {} with GEX_FLAG_AD_MY_RANK is not this rank",
                        self.rank
                    ),
                );
            }
            let own = job.neighbourhood(job.rank());
            if flags.contains(DomainFlags::MY_NBRHD) && job.neighbourhood(rank) != own {
                fatal(
                    call,
                    &format_args!(
                        "rank {} with GEX_FLAG_AD_MY_NBRHD is not in this rank's neighbourhood",
                        self.rank
                    ),
                );
            }
        }
        rank
    }

    /// # Safety
    /// If the operation fetches, `self.result` must be null or valid for a write of the type, and
    /// must not be used otherwise until the operation is complete.
    unsafe fn start(&self, call: &str, completion: Completion) -> Result<Option<Handle>, Refusal> {
        let domain = Domain::of(call, self.handle);
        let job = Job::of(call);
        let ty = domain.ty.load(Relaxed);
        if ty != self.ty {
            return Err(Refusal::bad(format_args!(
                "the domain's data type is {ty:#x}, not {:#x}",
                self.ty
            )));
        }
        let allowed = domain.operations.load(Relaxed);
        let known = TYPES.iter().find(|(code, _)| *code == ty);
        let request = known.and_then(|(_, ty)| request(self.op, *ty, self.first, self.second));
        let Some((request, fetches)) = request.filter(|_| allowed & self.op != 0) else {
            return Err(Refusal::bad(format_args!(
                "opcode {:#x} is not one of the domain's operations {allowed:#x}",
                self.op
            )));
        };
        let Some(flags) = DomainFlags::from_bits(self.flags)
            .filter(|flags| !flags.intersects(DomainFlags::OF_CREATE))
        else {
            return Err(Refusal::bad(format_args!(
                "flags {:#x} are not accepted",
                self.flags
            )));
        };
        let rank = self.target(call, job, domain, flags);
        let (engine, blocking) = (job.engine(), Flags::from_bits_retain(self.flags).blocking());
        let offset = offset(engine, rank, self.remote)?;
        if !fetches {
            return Ok(engine
                .atomics()
                .atomic_nb(rank, offset, request, completion, blocking)?);
        }
        if self.result.is_null() {
            return Err(Refusal::bad("the pointer for the result is null"));
        }
        let result = self.result.cast();
        // SAFETY: `result` is not null, so the caller guarantees that it is valid for a write of
        // the type and not used otherwise until the operation is complete.
        Ok(unsafe {
            engine
                .atomics()
                .atomic_fetch_nb(result, rank, offset, request, completion, blocking)?
        })
    }
}

/// `gex_AD_OpNB_*`. `ty` is the data type. The operands are passed in the low-order bits of `first`
/// and `second`.
///
/// # Safety
/// If the operation fetches, `result` must be null or valid for a write of the type, and must not
/// be used otherwise until the event is complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_ad_nb(
    handle: *const c_void,
    result: *mut c_void,
    rank: Rank,
    remote: *mut c_void,
    op: u32,
    first: u64,
    second: u64,
    ty: u32,
    flags: u32,
) -> usize {
    const CALL: &str = "gex_AD_OpNB";
    let operation = Operation {
        handle,
        result,
        rank,
        remote,
        op,
        first,
        second,
        ty,
        flags,
    };
    // SAFETY: the caller guarantees that `result` stays valid until the event is complete.
    event(sure(CALL, unsafe {
        operation.start(CALL, Completion::Handle)
    }))
}

/// `gex_AD_OpNBI_*`.
///
/// # Safety
/// Same as [`conduit_gex_ad_nb`], except that `result` must not be used otherwise until this
/// thread's implicit atomics are complete or, within an access region, until the region's event is
/// complete.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_ad_nbi(
    handle: *const c_void,
    result: *mut c_void,
    rank: Rank,
    remote: *mut c_void,
    op: u32,
    first: u64,
    second: u64,
    ty: u32,
    flags: u32,
) -> c_int {
    const CALL: &str = "gex_AD_OpNBI";
    let operation = Operation {
        handle,
        result,
        rank,
        remote,
        op,
        first,
        second,
        ty,
        flags,
    };
    // SAFETY: the caller guarantees that `result` stays valid until the operation is complete.
    let begun = unsafe { operation.start(CALL, Completion::Implicit) };
    started(CALL, Flags::empty(), begun.map(|handle| handle.is_some()))
}
