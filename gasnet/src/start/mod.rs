//! Joining a job.

mod environment;
mod exit_timeout;
mod library;
mod self_start;

use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::abi::{self, Config};
use crate::barrier;
use crate::fault::{Refusal, refuse};
use crate::job::Job;
use crate::{Mode, exit, signals, tools};

/// Pointers to a C program's arguments. Each may be null.
pub(crate) struct Arguments {
    pub(crate) count: *mut c_int,
    pub(crate) values: *mut *mut *mut c_char,
}

/// Returns a text of the headers' configuration.
///
/// # Safety
/// `text` must be null or a C string that lives as long as the process.
unsafe fn text(text: *const c_char) -> Result<&'static str, Refusal> {
    if text.is_null() {
        return Err(Refusal::bad("the header's configuration is incomplete"));
    }
    // SAFETY: `text` is not null, so the caller guarantees that it is a C string that lives as long
    // as the process.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(Refusal::bad)
}

/// Joins the job in which this process was started, or starts that job if there is no launcher.
///
/// # Safety
/// `config` must be null or point to the headers' configuration. The pointers in `arguments` must
/// be null or those of `main`.
unsafe fn join(
    call: &'static str,
    config: *const Config,
    arguments: &Arguments,
) -> Result<&'static Job, Refusal> {
    if Job::get().is_some() {
        return Err(Refusal::of(
            abi::NOT_INIT,
            "the job has already been joined",
        ));
    }
    // SAFETY: the caller guarantees that `config` is null or points to the headers' configuration.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return Err(Refusal::bad("the header's configuration is null"));
    };
    if config.bytes != size_of::<Config>() {
        return Err(Refusal::bad("the header does not belong to this library"));
    }
    // SAFETY: the two texts are literals in the headers.
    let (conduit, segment) = unsafe { (text(config.conduit)?, text(config.segment)?) };
    // SAFETY: the caller guarantees that the pointers are null or those of `main`.
    let words = unsafe { self_start::words(arguments.count, arguments.values.cast_const().cast()) };
    self_start::self_start(conduit, words.as_deref()).map_err(Refusal::bad)?;
    let (mut exit_timeout, mut most_neighbours) = (Ok(None), Ok(u32::MAX));
    let member = conduit::join::<Mode>(|settings, size| {
        most_neighbours = environment::adjust(settings, size);
        exit_timeout = exit_timeout::exit_timeout(size, |name| std::env::var(name).ok());
        if let Ok(Some(seconds)) = exit_timeout {
            settings.engine.exit_timeout.get_or_insert(seconds);
        }
    })?;
    exit_timeout.map_err(Refusal::bad)?;
    let catches_exit = environment::yes(c"GASNET_CATCH_EXIT", true)?;
    let job = Job::place(member, segment == "EVERYTHING", most_neighbours?)?;
    tools::job::set_place(job.rank(), job.size());
    tools::prepare_debugging();
    if job.everything {
        // With segment everything, a client need not attach: its puts and gets may begin after
        // init.
        // SAFETY: the client has requested segment everything, so it is responsible for the
        // addresses to which it writes, as in GASNet.
        unsafe { job.member.attach_everything() }?;
    }
    signals::name_rank(job.rank());
    signals::catch()?;
    exit::catch_exit(catches_exit);
    match barrier::all(call, job) {
        abi::OK => Ok(job),
        code => Err(Refusal::of(code, "the barrier after joining failed")),
    }
}

/// Joins the job. Collective; ends with a barrier.
///
/// # Safety
/// Each of the first three pointers must be null or valid for a write. `name` must be null or a C
/// string, `count` and `values` null or the arguments of `main`, and `config` null or the headers'
/// configuration.
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gex_client_init(
    client: *mut *const c_void,
    endpoint: *mut *const c_void,
    team: *mut *const c_void,
    name: *const c_char,
    count: *mut c_int,
    values: *mut *mut *mut c_char,
    flags: u32,
    config: *const Config,
) -> c_int {
    const CALL: &str = "gex_Client_Init";
    if name.is_null() {
        return refuse(CALL, &Refusal::bad("the client's name is null"));
    }
    // SAFETY: the caller guarantees what `join` requires of `config`, `count` and `values`.
    let job = match unsafe { join(CALL, config, &Arguments { count, values }) } {
        Ok(job) => job,
        Err(refusal) => return refuse(CALL, &refusal),
    };
    let objects = &job.objects;
    // SAFETY: `name` is not null, so the caller guarantees that it is a C string.
    let name: CString = unsafe { CStr::from_ptr(name) }.to_owned();
    let _ = objects.name.set(name);
    objects.client.set_flags(flags);
    for (place, object) in [
        (client, &objects.client),
        (endpoint, &objects.endpoint),
        (team, &objects.team.object),
    ] {
        if !place.is_null() {
            // SAFETY: `place` is not null, so the caller guarantees that it is valid for a write.
            unsafe { place.write(object.handle()) };
        }
    }
    abi::OK
}

/// Joins the job for a GASNet-1 client. Collective.
///
/// # Safety
/// Same as [`conduit_gex_client_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gasnet_init(
    count: *mut c_int,
    values: *mut *mut *mut c_char,
    config: *const Config,
) -> c_int {
    const CALL: &str = "gasnet_init";
    // SAFETY: the caller guarantees what `join` requires of `config`, `count` and `values`.
    match unsafe { join(CALL, config, &Arguments { count, values }) } {
        Ok(_) => {
            crate::legacy::IS_CLIENT.store(true, std::sync::atomic::Ordering::Relaxed);
            abi::OK
        }
        Err(refusal) => refuse(CALL, &refusal),
    }
}
