//! Teams: their handles in C, calls to create and destroy them, and the translation of their ranks.
//!
//! A `gex_TM_t` is one of three things: the address of the job's team, by which the headers
//! recognise that team; a pair of endpoints, composed of their indices; or the number of any other
//! team. Numbers are never reused, so that the handle of a destroyed team is recognised.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use conduit::Rank;
use conduit_core::collectives::Join;
use conduit_core::collectives::{Team, TeamId};
use parking_lot::RwLock;

use crate::abi::{self, Location, Memvec, TeamFlags};
use crate::fault::{fatal, sure};
use crate::job::Job;
use crate::objects::{Object, endpoint_index};

/// The lowest three bits of the handle of a team other than the job's.
const TEAM: usize = 2;
/// The lowest three bits of the handle of a pair of endpoints.
const PAIR: usize = 1;
/// The mask of these bits.
const TAG: usize = 7;
/// The position of a team's number in its handle, above these bits.
const SHIFT: u32 = 3;

/// The scratch size reported to clients. Teams need none, because their operations use the
/// library's memory, but clients may not pass 0.
const SCRATCH: usize = 64;

/// A team with its handle in C.
pub(crate) struct Named {
    pub(crate) object: Object,
    team: Team,
    /// The scratch space that the client has provided.
    scratch: Option<Memvec>,
}

impl Named {
    pub(crate) fn of_job(rank: Rank, size: u32) -> Self {
        Self {
            object: Object::new(),
            team: Team::of_job(rank, size),
            scratch: None,
        }
    }

    pub(crate) fn id(&self) -> TeamId {
        self.team.id
    }

    pub(crate) fn rank(&self) -> u32 {
        self.team.rank
    }

    pub(crate) fn size(&self) -> u32 {
        self.team.size
    }
}

/// The teams of a process other than the job's.
#[derive(Default)]
pub(crate) struct Teams {
    teams: RwLock<HashMap<usize, Arc<Named>>>,
    /// The number of handles issued so far.
    given: AtomicUsize,
}

/// A reference to a team, held during a call.
pub(crate) enum Held {
    Job(&'static Named),
    Other(Arc<Named>),
}

impl Deref for Held {
    type Target = Named;

    fn deref(&self) -> &Named {
        match self {
            Self::Job(team) => team,
            Self::Other(team) => team,
        }
    }
}

impl Teams {
    fn find(&self, handle: usize) -> Option<Arc<Named>> {
        self.teams.read().get(&handle).cloned()
    }

    fn add(&self, team: Named) -> usize {
        let handle = (self.given.fetch_add(1, Relaxed) + 1) << SHIFT | TEAM;
        self.teams.write().insert(handle, Arc::new(team));
        handle
    }
}

fn no_team(call: &str, handle: *const c_void) -> ! {
    fatal(call, &format_args!("{handle:p} is not a valid team handle"))
}

/// Returns the team of a handle from C, for calls that do not accept a pair.
pub(crate) fn team(call: &str, handle: *const c_void) -> (&'static Job, Held) {
    let job = Job::of(call);
    if handle == job.objects.team.object.handle() {
        return (job, Held::Job(&job.objects.team));
    }
    match job.objects.teams.find(handle.addr()) {
        Some(team) => (job, Held::Other(team)),
        None if handle.addr() & TAG == PAIR => {
            fatal(call, &"this call does not accept a pair of endpoints")
        }
        None => no_team(call, handle),
    }
}

/// Returns the team of a collective call that accepts no flags.
pub(crate) fn team_without_flags(
    call: &str,
    handle: *const c_void,
    flags: u32,
) -> (&'static Job, Held) {
    let found = team(call, handle);
    no_flags(call, flags);
    found
}

fn no_flags(call: &str, flags: u32) {
    if flags != 0 {
        fatal(
            call,
            &format_args!("flags {flags:#x} given, but this call accepts none"),
        );
    }
}

/// Translates a rank of a team or pair from C to the rank in the job whose memory is accessed. Ends
/// the job if a pair names an endpoint on which that rank has published no memory.
pub(crate) fn team_rank(call: &str, handle: *const c_void, rank: Rank) -> Rank {
    let rank = named_rank(call, handle, rank);
    let index = remote_index(handle);
    if index != 0 && Job::of(call).engine().memory().bound(rank, index).is_none() {
        fatal(
            call,
            &format_args!("rank {rank} has published no memory bound to endpoint {index}"),
        );
    }
    rank
}

/// Returns the job, and the job rank of the target of a put or get. Ranks of the job's team are not
/// checked here, because the engine checks them.
#[inline]
pub(crate) fn target(call: &str, handle: *const c_void, rank: Rank) -> (&'static Job, Rank) {
    let job = Job::of(call);
    if handle == job.objects.team.object.handle() {
        (job, rank)
    } else {
        (job, team_rank(call, handle, rank))
    }
}

/// Returns the same rank as [`team_rank`], but does not check the endpoint.
pub(crate) fn named_rank(call: &str, handle: *const c_void, rank: Rank) -> Rank {
    rank_in(call, handle, rank).unwrap_or_else(|reason| fatal(call, &reason))
}

/// Returns the same rank as [`named_rank`], or a description of what is wrong, for calls that can
/// return errors.
pub(crate) fn rank_in(call: &str, handle: *const c_void, rank: Rank) -> Result<Rank, String> {
    match pair(handle) {
        Some(_) => member(&Job::of(call).objects.team, rank),
        None => member(&team(call, handle).1, rank),
    }
}

/// Returns the index of the remote endpoint that a pair names, or 0 for a team.
pub(crate) fn remote_index(handle: *const c_void) -> u16 {
    pair(handle).map_or(0, |(_, remote)| remote)
}

fn member(team: &Named, rank: Rank) -> Result<Rank, String> {
    team.team.to_job(rank).ok_or_else(|| {
        let size = team.size();
        let kind = match team.id() {
            TeamId::JOB => "job",
            _ => "team",
        };
        format!("rank {rank} is not in a {kind} of {size} ranks")
    })
}

fn sure_member(call: &str, team: &Named, rank: Rank) -> Rank {
    member(team, rank).unwrap_or_else(|reason| fatal(call, &reason))
}

/// Returns the local and the remote index of a pair of endpoints, or `None` if the handle is not a
/// pair.
fn pair(handle: *const c_void) -> Option<(u16, u16)> {
    let bits = handle.addr();
    (bits & TAG == PAIR).then_some(((bits >> 32) as u16, (bits >> 16) as u16))
}

/// Translates a rank of a pair, or of a team other than the job's, to the job rank. The headers'
/// `conduit_gex_rank` calls this.
///
/// # Safety
/// `call` must be a C string.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_rank_of(
    call: *const c_char,
    handle: *const c_void,
    rank: Rank,
) -> Rank {
    // SAFETY: the caller guarantees that `call` is a C string; the headers pass a literal.
    let call = unsafe { CStr::from_ptr(call) }.to_string_lossy();
    let index = remote_index(handle);
    let lacks = |start: &str| index != 0 && call.starts_with(start);
    if lacks("gex_AM_") {
        fatal(
            &call,
            &format_args!("endpoint {index} does not accept messages"),
        );
    }
    if lacks("gex_VIS_") {
        let reason = format_args!("endpoint {index} has GEX_EP_CAPABILITY_RMA only, not VIS");
        fatal(&call, &reason);
    }
    team_rank(&call, handle, rank)
}

// ---- creation and destruction ----

/// Returns the scratch space that the client provides for a new team, or `None` if it provides
/// none. Ends the job if the space has no bytes.
fn scratch(call: &str, address: *mut c_void, bytes: usize, flags: TeamFlags) -> Option<Memvec> {
    if flags.contains(TeamFlags::NO_SCRATCH) {
        return None;
    }
    if bytes == 0 {
        fatal(call, &"scratch_size is 0 without GEX_FLAG_TM_NO_SCRATCH");
    }
    Some(Memvec { address, bytes })
}

/// Creates the team that this rank joins, and returns the team's handle, or null if this rank joins
/// none.
fn make(
    call: &str,
    job: &'static Job,
    parent: &Named,
    join: Join<'_>,
    scratch: Option<Memvec>,
) -> *const c_void {
    let made = sure(
        call,
        job.engine().collectives().team_create(parent.id(), join),
    );
    let handle = made.map_or(0, |team| {
        job.objects.teams.add(Named {
            object: Object::new(),
            team,
            scratch,
        })
    });
    std::ptr::without_provenance(handle)
}

/// Splits a team into one team for each color that its ranks give. Collective over the parent. If a
/// scratch size is requested, only returns that size.
///
/// # Safety
/// `place` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_TM_Split(
    place: *mut *const c_void,
    parent: *const c_void,
    color: c_int,
    key: c_int,
    address: *mut c_void,
    bytes: usize,
    flags: TeamFlags,
) -> usize {
    const CALL: &str = "gex_TM_Split";
    let (job, parent) = team(CALL, parent);
    if flags.intersects(TeamFlags::SCRATCH_SIZE) {
        return if place.is_null() { 0 } else { SCRATCH };
    }
    let (join, scratch) = if place.is_null() {
        (Join::None, None)
    } else {
        let Ok(color) = u32::try_from(color) else {
            fatal(CALL, &format_args!("color {color} is negative"));
        };
        (
            Join::Color { color, key },
            scratch(CALL, address, bytes, flags),
        )
    };
    let made = make(CALL, job, &parent, join, scratch);
    if !place.is_null() {
        // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
        unsafe { place.write(made) };
    }
    0
}

/// Creates a team from a list of its members. Collective over the parent. If a scratch size is
/// requested, only returns that size.
///
/// # Safety
/// Unless `count` is 0 or a size is requested, each pointer must be null or valid: `members` for
/// reads of `count` entries, `place` for a write, and `addresses` for reads of the entries that
/// `flags` requires.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_TM_Create(
    place: *mut *const c_void,
    teams: usize,
    parent: *const c_void,
    members: *const Location,
    count: usize,
    addresses: *const *mut c_void,
    bytes: usize,
    flags: TeamFlags,
) -> usize {
    const CALL: &str = "gex_TM_Create";
    let (job, parent) = team(CALL, parent);
    if flags.intersects(TeamFlags::SCRATCH_SIZE) {
        return if count == 0 { 0 } else { SCRATCH };
    }
    if count == 0 {
        make(CALL, job, &parent, Join::None, None);
        return 0;
    }
    if teams != 1 || place.is_null() || members.is_null() || count > job.size() as usize {
        fatal(
            CALL,
            &format_args!(
                "invalid arguments: {teams} teams at {place:p} of {count} members at {members:p}"
            ),
        );
    }
    // SAFETY: `members` is not null, so the caller guarantees that it is valid for `count` entries.
    let members = unsafe { std::slice::from_raw_parts(members, count) };
    let is_job_rank = flags.contains(TeamFlags::RANK_IS_JOBRANK);
    let members = members.iter().map(|location| {
        if location.endpoint != 0 {
            fatal(CALL, &"members of a team must be first endpoints");
        }
        match is_job_rank {
            true => location.rank,
            false => sure_member(CALL, &parent, location.rank),
        }
    });
    let members: Vec<Rank> = members.collect();
    let own = members.iter().position(|&rank| rank == job.rank());
    let which = match flags.intersection(TeamFlags::SCRATCH) {
        TeamFlags::NO_SCRATCH => None,
        TeamFlags::LOCAL_SCRATCH | TeamFlags::SYMMETRIC_SCRATCH => Some(0),
        TeamFlags::GLOBAL_SCRATCH => Some(own.unwrap_or(0)),
        other => fatal(
            CALL,
            &format_args!(
                "flags {:#x} must name exactly one kind of scratch space",
                other.bits()
            ),
        ),
    };
    if which.is_some() && addresses.is_null() {
        fatal(CALL, &"scratch_addrs is null");
    }
    let scratch = which.and_then(|which| {
        // SAFETY: `addresses` is not null, so the caller guarantees that it is valid for this
        // entry.
        let address = unsafe { *addresses.add(which) };
        scratch(CALL, address, bytes, flags)
    });
    let made = make(CALL, job, &parent, Join::Members(&members), scratch);
    // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
    unsafe { place.write(made) };
    0
}

/// Destroys a team, which must have no operations under way. The call is collective, but does not
/// wait. Returns a nonzero value if the client's scratch space has been written to `place`.
///
/// # Safety
/// `place` must be null or valid for a write.
#[unsafe(no_mangle)]
unsafe extern "C" fn gex_TM_Destroy(
    handle: *const c_void,
    place: *mut Memvec,
    _flags: TeamFlags,
) -> c_int {
    const CALL: &str = "gex_TM_Destroy";
    let (job, team) = team(CALL, handle);
    sure(CALL, job.engine().collectives().team_destroy(team.id()));
    job.objects.teams.teams.write().remove(&handle.addr());
    match team.scratch {
        Some(scratch) if !place.is_null() => {
            // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
            unsafe { place.write(scratch) };
            1
        }
        _ => 0,
    }
}

/// Makes a pair of a local endpoint and the index of a remote endpoint, which applies to every rank
/// of the job.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_Pair(endpoint: *const c_void, remote: u16) -> *const c_void {
    const CALL: &str = "gex_TM_Pair";
    let local = usize::from(endpoint_index(CALL, endpoint));
    std::ptr::without_provenance(local << 32 | (remote as usize) << 16 | PAIR)
}

// ---- queries ----

/// Stores a word for the client with the team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_SetCData(handle: *const c_void, value: *mut c_void) {
    team("gex_TM_SetCData", handle).1.object.set_cdata(value);
}

/// Returns the word that the client has stored with the team, or null if it has stored none.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryCData(handle: *const c_void) -> *mut c_void {
    team("gex_TM_QueryCData", handle).1.object.cdata()
}

/// Returns the team's client.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryClient(handle: *const c_void) -> *const c_void {
    team("gex_TM_QueryClient", handle).0.objects.client.handle()
}

/// Returns this rank's endpoint in the team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryEP(handle: *const c_void) -> *const c_void {
    team("gex_TM_QueryEP", handle).0.objects.endpoint.handle()
}

/// Returns the team's flags, which are always 0.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryFlags(handle: *const c_void) -> u32 {
    team("gex_TM_QueryFlags", handle).1.object.flags()
}

/// Returns this rank's number in a team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QueryRank(handle: *const c_void) -> c_uint {
    team("gex_TM_QueryRank", handle).1.rank()
}

/// Returns the number of ranks in a team.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_QuerySize(handle: *const c_void) -> c_uint {
    team("gex_TM_QuerySize", handle).1.size()
}

/// Translates a rank of a team to a rank of the job.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateRankToJobrank(handle: *const c_void, rank: Rank) -> Rank {
    const CALL: &str = "gex_TM_TranslateRankToJobrank";
    sure_member(CALL, &team(CALL, handle).1, rank)
}

/// Translates a rank of the job to a rank of a team. Returns `GEX_RANK_INVALID` if the rank is not
/// a member.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateJobrankToRank(handle: *const c_void, rank: Rank) -> Rank {
    const CALL: &str = "gex_TM_TranslateJobrankToRank";
    let (job, team) = team(CALL, handle);
    job.check_rank(CALL, rank);
    team.team.from_job(rank).unwrap_or(abi::NO_RANK)
}

/// Returns the rank in the job and the endpoint index of a team's rank.
#[unsafe(no_mangle)]
extern "C" fn gex_TM_TranslateRankToEP(handle: *const c_void, rank: Rank, flags: u32) -> Location {
    const CALL: &str = "gex_TM_TranslateRankToEP";
    let rank = sure_member(CALL, &team(CALL, handle).1, rank);
    no_flags(CALL, flags);
    Location { rank, endpoint: 0 }
}
