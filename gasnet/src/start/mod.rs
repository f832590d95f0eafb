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

/// A C program's arguments, which may be null.
pub(crate) struct Arguments {
    pub(crate) count: *mut c_int,
    pub(crate) values: *mut *mut *mut c_char,
}

/// Returns a text from the headers.
///
/// # Safety
/// `text` is null or a C string that lives as long as the process.
unsafe fn text(text: *const c_char) -> Result<&'static str, Refusal> {
    if text.is_null() {
        return Err(Refusal::bad("the header's configuration is incomplete"));
    }
    // SAFETY: not null; the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_str()
        .map_err(Refusal::bad)
}

/// Joins the job in which the process was started.
///
/// # Safety
/// `config` is the headers' configuration.
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
    // SAFETY: null, or the headers' configuration.
    let Some(config) = (unsafe { config.as_ref() }) else {
        return Err(Refusal::bad("the header's configuration is null"));
    };
    if config.bytes != size_of::<Config>() {
        return Err(Refusal::bad("the header does not belong to this library"));
    }
    // SAFETY: literals of the headers.
    let (conduit, segment) = unsafe { (text(config.conduit)?, text(config.segment)?) };
    // SAFETY: null, or the arguments of `main`.
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
        // No attach is needed: puts and gets may begin after init.
        // SAFETY: the client has requested it and chooses where it writes, as in GASNet.
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

/// Joins the job. Collective, with a barrier.
///
/// # Safety
/// Each pointer is null or valid for a write, `name` is a C string, and `config` is the headers'
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
    // SAFETY: the caller's promise.
    let job = match unsafe { join(CALL, config, &Arguments { count, values }) } {
        Ok(job) => job,
        Err(refusal) => return refuse(CALL, &refusal),
    };
    let objects = &job.objects;
    // SAFETY: not null; the caller's promise.
    let name: CString = unsafe { CStr::from_ptr(name) }.to_owned();
    let _ = objects.name.set(name);
    objects.client.set_flags(flags);
    for (place, object) in [
        (client, &objects.client),
        (endpoint, &objects.endpoint),
        (team, &objects.team.object),
    ] {
        if !place.is_null() {
            // SAFETY: not null; the caller's promise.
            unsafe { place.write(object.handle()) };
        }
    }
    abi::OK
}

/// Joins the job for a GASNet-1 client. Collective.
///
/// # Safety
/// As for [`conduit_gex_client_init`].
#[unsafe(no_mangle)]
unsafe extern "C" fn conduit_gasnet_init(
    count: *mut c_int,
    values: *mut *mut *mut c_char,
    config: *const Config,
) -> c_int {
    const CALL: &str = "gasnet_init";
    // SAFETY: the caller's promise.
    match unsafe { join(CALL, config, &Arguments { count, values }) } {
        Ok(_) => {
            crate::legacy::IS_CLIENT.store(true, std::sync::atomic::Ordering::Relaxed);
            abi::OK
        }
        Err(refusal) => refuse(CALL, &refusal),
    }
}
