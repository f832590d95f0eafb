//! GASNet-EX's collective operations other than barriers: broadcasts and reductions.

use std::ffi::c_void;

use conduit::Rank;
use conduit_core::collectives::{CollectiveKind, DataType, ReduceOp};
use conduit_core::collectives::{CollectiveSync, ReduceFunction, Reduction};
use conduit_core::kernel::{Completion, Handle};

use crate::event::{event, wait_for};
use crate::fault::{Refusal, fatal, sure};
use crate::handlers::is_memory;
use crate::job::Job;
use crate::team::{Held, team_without_flags};

/// The codes of `gex_DT_t`.
mod types {
    pub(super) const I32: u32 = 0x01;
    pub(super) const U32: u32 = 0x02;
    pub(super) const I64: u32 = 0x04;
    pub(super) const U64: u32 = 0x08;
    pub(super) const FLT: u32 = 0x10;
    pub(super) const DBL: u32 = 0x20;
    pub(super) const USER: u32 = 0x40;
}

/// The codes of `gex_OP_t` that reductions accept.
mod operations {
    pub(super) const ADD: u32 = 0x008;
    pub(super) const MULT: u32 = 0x020;
    pub(super) const MIN: u32 = 0x040;
    pub(super) const MAX: u32 = 0x080;
    pub(super) const AND: u32 = 0x001;
    pub(super) const OR: u32 = 0x002;
    pub(super) const XOR: u32 = 0x004;
    pub(super) const USER: u32 = 0x0400_0000;
    pub(super) const USER_NC: u32 = 0x0800_0000;
}

/// `gex_Coll_ReduceFn_t`: a client's function that reduces elements.
type ReduceFn = unsafe extern "C" fn(*const c_void, *mut c_void, usize, *const c_void);

/// A client's reduction function and the word passed to it.
struct Client {
    function: ReduceFn,
    cdata: *const c_void,
}

// SAFETY: GASNet lets any thread call the function. This library never dereferences `cdata`. It
// only passes `cdata` to the function.
unsafe impl Send for Client {}

impl Client {
    fn reduce(&self, element: usize, left: &[u8], right: &mut [u8]) {
        let count = right.len() / element;
        // SAFETY: the engine passes two slices of the same length, so both hold `count` elements.
        // `right` is mutably borrowed, so it is writable and does not overlap `left`. The client
        // guarantees that its function handles such elements.
        unsafe {
            (self.function)(
                left.as_ptr().cast(),
                right.as_mut_ptr().cast(),
                count,
                self.cdata,
            );
        }
    }

    fn into_function(self, element: usize) -> ReduceFunction {
        Box::new(move |left, right| self.reduce(element, left, right))
    }
}

fn data_type(code: u32) -> Option<DataType> {
    Some(match code {
        types::I32 => DataType::I32,
        types::U32 => DataType::U32,
        types::I64 => DataType::I64,
        types::U64 => DataType::U64,
        types::FLT => DataType::F32,
        types::DBL => DataType::F64,
        _ => return None,
    })
}

fn operation(code: u32) -> Option<ReduceOp> {
    Some(match code {
        operations::ADD => ReduceOp::Add,
        operations::MULT => ReduceOp::Mult,
        operations::MIN => ReduceOp::Min,
        operations::MAX => ReduceOp::Max,
        operations::AND => ReduceOp::And,
        operations::OR => ReduceOp::Or,
        operations::XOR => ReduceOp::Xor,
        _ => return None,
    })
}

/// Translates a client's reduction to the engine's.
fn reduction(
    dt: u32,
    element: usize,
    op: u32,
    function: Option<ReduceFn>,
    cdata: *const c_void,
) -> Result<Reduction, Refusal> {
    let ty = data_type(dt);
    if ty.is_none() && dt != types::USER {
        return Err(Refusal::bad(format_args!(
            "data type {dt:#x} is not a type of reductions"
        )));
    }
    if let Some(ty) = ty
        && ty.size() != element
    {
        let size = ty.size();
        return Err(Refusal::bad(format_args!(
            "dt_sz is {element}, but the type has {size} bytes"
        )));
    }
    match op {
        operations::USER | operations::USER_NC => {
            let function = function.ok_or_else(|| Refusal::bad("user_op is null"))?;
            let function = Client { function, cdata }.into_function(element);
            Ok(Reduction::Custom {
                element,
                function,
                in_order: op == operations::USER_NC,
            })
        }
        _ => match (ty, operation(op)) {
            (Some(ty), Some(op)) => Ok(Reduction::Known(ty, op)),
            (None, Some(_)) => Err(Refusal::bad(
                "GEX_DT_USER supports only GEX_OP_USER and GEX_OP_USER_NC",
            )),
            (_, None) => Err(Refusal::bad(format_args!(
                "operation {op:#x} is not a reduction"
            ))),
        },
    }
}

/// Ends the job if a range that an operation uses on this rank cannot be memory. A range of zero
/// bytes is always valid.
pub(crate) fn memory(call: &str, name: &str, address: *const c_void, bytes: usize) {
    if !is_memory(address, bytes) {
        fatal(
            call,
            &format_args!("{name} is {bytes} bytes at {address:p}, which is not valid memory"),
        );
    }
}

/// Starts a broadcast from `source` on the rank `root` to `result` on all ranks.
///
/// # Safety
/// Until the event is complete, `result` must be valid for writes of `bytes` bytes and, at the
/// root, `source` for reads of `bytes` bytes. Neither may be used otherwise until then.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Coll_BroadcastNB(
    team: *const c_void,
    root: Rank,
    result: *mut c_void,
    source: *const c_void,
    bytes: usize,
    flags: u32,
) -> usize {
    const CALL: &str = "gex_Coll_BroadcastNB";
    let (job, team) = team_without_flags(CALL, team, flags);
    memory(CALL, "dst", result, bytes);
    if root == team.rank() {
        memory(CALL, "src", source, bytes);
    }
    let (kind, sync) = (
        CollectiveKind::Broadcast { root },
        CollectiveSync::default(),
    );
    let (result, source) = (result.cast(), source.cast());
    // SAFETY: the caller guarantees that `result` and, at the root, `source` are valid for `bytes`
    // bytes until the event is complete.
    let started = unsafe {
        job.engine().collectives().move_nb(
            team.id(),
            kind,
            result,
            source,
            bytes,
            sync,
            Completion::Handle,
        )
    };
    started_event(CALL, started)
}

/// Starts a reduction to the rank `root`, or to all ranks if `root` is `None`.
///
/// # Safety
/// Same as [`gex_Coll_ReduceToAllNB`], except that `result` need only be valid on the rank `root`
/// if there is one.
unsafe fn reduce(
    call: &str,
    (job, team): &(&Job, Held),
    root: Option<Rank>,
    (result, source, bytes): (*mut c_void, *const c_void, usize),
    count: usize,
    how: Reduction,
) -> usize {
    memory(call, "src", source, bytes);
    if root.is_none_or(|root| root == team.rank()) {
        memory(call, "dst", result, bytes);
    }
    let (result, source) = (result.cast(), source.cast());
    // SAFETY: the caller guarantees that `source` and, on the ranks that receive the result,
    // `result` are valid for `count` elements until the event is complete.
    started_event(call, unsafe {
        let engine = job.engine();
        let by_handle = Completion::Handle;
        engine
            .collectives()
            .reduce_nb(team.id(), root, result, source, count, how, by_handle)
    })
}

/// Starts a reduction to one rank.
///
/// # Safety
/// Same as [`gex_Coll_ReduceToAllNB`], except that `result` need only be valid at the root.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Coll_ReduceToOneNB(
    team: *const c_void,
    root: Rank,
    result: *mut c_void,
    source: *const c_void,
    dt: u32,
    element: usize,
    count: usize,
    op: u32,
    function: Option<ReduceFn>,
    cdata: *mut c_void,
    flags: u32,
) -> usize {
    const CALL: &str = "gex_Coll_ReduceToOneNB";
    let team = team_without_flags(CALL, team, flags);
    let how = sure(CALL, reduction(dt, element, op, function, cdata));
    let data = (result, source, element.saturating_mul(count));
    // SAFETY: the caller guarantees what `reduce` requires of `source`, `result` and `function`.
    unsafe { reduce(CALL, &team, Some(root), data, count, how) }
}

/// Starts a reduction to all ranks.
///
/// # Safety
/// Until the event is complete, `source` and `result` must be valid for `count` elements of
/// `element` bytes each and must not be used otherwise. If `op` is `GEX_OP_USER` or
/// `GEX_OP_USER_NC`, `function` must be null or reduce such elements.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_Coll_ReduceToAllNB(
    team: *const c_void,
    result: *mut c_void,
    source: *const c_void,
    dt: u32,
    element: usize,
    count: usize,
    op: u32,
    function: Option<ReduceFn>,
    cdata: *mut c_void,
    flags: u32,
) -> usize {
    const CALL: &str = "gex_Coll_ReduceToAllNB";
    let team = team_without_flags(CALL, team, flags);
    let how = sure(CALL, reduction(dt, element, op, function, cdata));
    let data = (result, source, element.saturating_mul(count));
    // SAFETY: the caller guarantees what `reduce` requires of `source`, `result` and `function`.
    unsafe { reduce(CALL, &team, None, data, count, how) }
}

fn started_event(call: &str, started: conduit_core::kernel::Result<Handle>) -> usize {
    event(Some(sure(call, started)))
}

/// Returns the elementwise minimum of the arrays that the team's ranks pass. Collective.
pub(crate) fn least(call: &'static str, team: *const c_void, own: [u32; 6]) -> [u32; 6] {
    let (ty, min, flags) = (types::U32, operations::MIN, 0);
    let (element, count) = (size_of::<u32>(), own.len());
    let mut least = own;
    let (result, source) = (least.as_mut_ptr().cast(), own.as_ptr().cast());
    let (function, cdata) = (None, std::ptr::null_mut());
    // SAFETY: the two pointers refer to local arrays of `count` elements, which outlive the wait
    // below.
    let event = unsafe {
        gex_Coll_ReduceToAllNB(
            team, result, source, ty, element, count, min, function, cdata, flags,
        )
    };
    wait_for(call, event);
    least
}
