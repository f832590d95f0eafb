//! The table's operations on contexts: creating and destroying them, making progress, and waiting
//! for completions.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::abi::{na_class, na_context};
use crate::class::{PluginClass, class_of};
use crate::log::Outlet;
use crate::report;
use crate::status::{Failure, Result, Return};

/// The plugin's part of a context, to which `plugin_context` points.
pub(crate) struct Context {
    class: *const PluginClass,
    id: u8,
    /// The number of operations that were begun and whose callbacks have not been called.
    active: AtomicUsize,
    /// The number of completions passed to the library.
    completed: AtomicUsize,
    /// The number of completions that polling has reported to the library.
    told: AtomicUsize,
}

impl Context {
    pub(crate) fn id(&self) -> u8 {
        self.id
    }

    /// Counts an operation that begins.
    pub(crate) fn begun(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an operation that has ended and no longer accesses the context.
    pub(crate) fn ended(&self) {
        // SYNC: Release, paired with the Acquire in `context_destroy`.
        self.active.fetch_sub(1, Ordering::Release);
    }

    /// Counts a completion that was passed to the library.
    pub(crate) fn completed(&self) {
        self.completed.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of completions since the last call, including completions that other
    /// threads have detected.
    fn news(&self) -> usize {
        let completed = self.completed.load(Ordering::Acquire);
        completed.wrapping_sub(self.told.swap(completed, Ordering::Relaxed))
    }
}

/// Returns the plugin's part of a context.
///
/// # Safety
/// The context must be null or one of the library's that was created and not destroyed.
pub(crate) unsafe fn context_of<'a>(
    class: &PluginClass,
    context: *const na_context,
) -> Result<&'a Context> {
    // SAFETY: the caller guarantees that the context is null or was created and not destroyed, and
    // `context_create` has set `plugin_context`.
    let found = unsafe {
        context
            .as_ref()
            .and_then(|context| context.plugin_context.cast::<Context>().as_ref())
    };
    match found {
        None => Err(Failure::invalid("no context given")),
        Some(context) if !ptr::eq(context.class, class) => {
            Err(Failure::invalid("the context belongs to another class"))
        }
        Some(context) => Ok(context),
    }
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn context_create(
    class: *mut na_class,
    _context: *mut na_context,
    created: *mut *mut c_void,
    id: u8,
) -> Return {
    let create = || -> Result {
        // SAFETY: the library passes its class.
        let class = unsafe { class_of(class) }?;
        let most = class.class().max_contexts();
        if id >= most {
            return Err(Failure::invalid(format!(
                "context {id} does not exist: max_contexts is {most}"
            )));
        }
        if created.is_null() {
            return Err(Failure::invalid("the output context is null"));
        }
        class.contexts().fetch_add(1, Ordering::Relaxed);
        let context = Box::into_raw(Box::new(Context {
            class,
            id,
            active: AtomicUsize::new(0),
            completed: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
        }));
        // SAFETY: `created` is not null, so the library guarantees that it is valid for a write.
        unsafe { *created = context.cast() };
        Ok(())
    };
    report(Outlet::Context, c"context_create", create())
}

pub(crate) unsafe extern "C" fn context_destroy(
    class: *mut na_class,
    context: *mut c_void,
) -> Return {
    let destroy = || -> Result {
        // SAFETY: the library passes its class.
        let class = unsafe { class_of(class) }?;
        let context: *mut Context = context.cast();
        // SAFETY: the pointer is null or was created by `context_create`.
        let Some(found) = (unsafe { context.as_ref() }) else {
            return Err(Failure::invalid("no context given"));
        };
        if !ptr::eq(found.class, class) {
            return Err(Failure::invalid("the context belongs to another class"));
        }
        // SYNC: Acquire, paired with the Release in `ended`: if the count is 0, no operation
        // accesses the context any more.
        let active = found.active.load(Ordering::Acquire);
        if active > 0 {
            return Err(Failure::new(
                Return::Busy,
                format!(
                    "{active} operations of the context have not ended, or their callbacks have not been called"
                ),
            ));
        }
        // This call waits for the class's lock, under which another thread may still be delivering
        // completions to this context.
        let _ = class.class().counts();
        // SAFETY: `context_create` created the context, and the library destroys it only once.
        drop(unsafe { Box::from_raw(context) });
        class.contexts().fetch_sub(1, Ordering::Relaxed);
        Ok(())
    };
    report(Outlet::Context, c"context_destroy", destroy())
}

/// Returns the class and the context that were passed to a call. Fails only if the library's user
/// made a mistake.
///
/// # Safety
/// Each pointer must be null or valid for an object of the library.
unsafe fn both<'a>(
    class: *mut na_class,
    context: *mut na_context,
) -> Result<(&'a PluginClass, &'a Context)> {
    // SAFETY: the caller guarantees that each pointer is null or valid for an object of the
    // library.
    unsafe {
        let class = class_of(class)?;
        Ok((class, context_of(class, context)?))
    }
}

pub(crate) unsafe extern "C" fn poll_get_fd(
    class: *mut na_class,
    context: *mut na_context,
) -> c_int {
    // SAFETY: the library passes its class and context.
    match unsafe { both(class, context) } {
        Ok((class, context)) => class
            .class()
            .descriptor(context.id)
            .map_or(-1, |descriptor| descriptor.as_raw_fd()),
        Err(failure) => {
            report(Outlet::Poll, c"poll_get_fd", Err(failure));
            -1
        }
    }
}

pub(crate) unsafe extern "C" fn poll_try_wait(
    class: *mut na_class,
    context: *mut na_context,
) -> bool {
    // SAFETY: the library passes its class and context.
    match unsafe { both(class, context) } {
        Ok((class, context)) => class.class().prepare_sleep(context.id),
        Err(failure) => {
            report(Outlet::Poll, c"poll_try_wait", Err(failure));
            false
        }
    }
}

pub(crate) unsafe extern "C" fn poll(
    class: *mut na_class,
    context: *mut na_context,
    count: *mut c_uint,
) -> Return {
    let poll = || -> Result {
        // SAFETY: the library passes its class and context.
        let (class, context) = unsafe { both(class, context) }?;
        class.class().progress(context.id);
        tell(context.news(), count);
        Ok(())
    };
    report(Outlet::Poll, c"poll", poll())
}

pub(crate) unsafe extern "C" fn poll_wait(
    class: *mut na_class,
    context: *mut na_context,
    timeout_ms: c_uint,
    count: *mut c_uint,
) -> Return {
    // SAFETY: the library passes its class and context.
    let (class, context) = match unsafe { both(class, context) } {
        Ok(both) => both,
        Err(failure) => return report(Outlet::Poll, c"poll_wait", Err(failure)),
    };
    let limit = Duration::from_millis(timeout_ms.into());
    let begun = (timeout_ms > 0).then(Instant::now);
    loop {
        class.class().progress(context.id);
        let news = context.news();
        if news > 0 {
            tell(news, count);
            return Return::Success;
        }
        let left = begun.map_or(Duration::ZERO, |begun| {
            limit.saturating_sub(begun.elapsed())
        });
        if left.is_zero() {
            tell(0, count);
            return Return::Timeout;
        }
        class.class().sleep(context.id, Some(left));
    }
}

fn tell(number: usize, count: *mut c_uint) {
    if !count.is_null() {
        let number = number.try_into().unwrap_or(c_uint::MAX);
        // SAFETY: `count` is not null, so the library guarantees that it is valid for a write.
        unsafe { *count = number };
    }
}
