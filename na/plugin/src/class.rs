//! Classes: creating a class of [`na`] from the library's options, and finalizing it.

use std::ffi::{CStr, c_char, c_ulong};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use na::raw::Class;
use na::{AddressFormat, Options};

use crate::abi::{
    NO_BLOCK, NO_RETRY, OPT_MULTI_RECV, THREAD_MODE_SINGLE, TRAFFIC_NETWORK_CONTROL, addr_format,
    na_class, na_info, na_init_info,
};
use crate::library::{self, CompletionAdd};
use crate::log::{self, Level, Outlet};
use crate::status::{Failure, Result, Return};
use crate::{events, operation, report, report_at};

/// The plugin's part of a class, to which `plugin_class` points.
pub(crate) struct PluginClass {
    class: Class,
    completion_add: CompletionAdd,
    contexts: AtomicUsize,
}

impl PluginClass {
    pub(crate) fn class(&self) -> &Class {
        &self.class
    }

    /// Returns the function that passes completions to the library.
    pub(crate) fn completion_add(&self) -> CompletionAdd {
        self.completion_add
    }

    /// Returns the counter of contexts that were created and not destroyed.
    pub(crate) fn contexts(&self) -> &AtomicUsize {
        &self.contexts
    }
}

/// Returns the plugin's part of a class.
///
/// # Safety
/// The class must be null or one of the library's.
pub(crate) unsafe fn class_of<'a>(class: *const na_class) -> Result<&'a PluginClass> {
    // SAFETY: the caller guarantees that the class is null or one of the library's, and
    // `plugin_class` is null or was set by `initialize`.
    unsafe {
        let class = class
            .as_ref()
            .ok_or_else(|| Failure::invalid("no class given"))?;
        class
            .plugin_class
            .cast::<PluginClass>()
            .as_ref()
            .ok_or_else(|| Failure::invalid("the class is finalized"))
    }
}

/// Returns a string of the library, or `None` if it is null.
///
/// # Safety
/// The string must be null or zero-terminated.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: the string is not null, so the caller guarantees that it is zero-terminated.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| {
        Failure::invalid(format!(
            "{what} is not valid UTF-8: {}",
            text.to_string_lossy()
        ))
    })
}

/// Converts the user's options.
///
/// # Safety
/// The strings of `init` must be null or zero-terminated.
unsafe fn options(init: &na_init_info, listen: bool) -> Result<Options> {
    if init.request_mem_device != 0 {
        return Err(Failure::new(
            Return::OpNotSupported,
            "request_mem_device: device memory is not supported",
        ));
    }
    let unknown = |option: &str, value: u32| {
        Err(Failure::invalid(format!(
            "{option} has the unknown value {value}"
        )))
    };
    if init.progress_mode & !(NO_BLOCK | NO_RETRY) != 0 {
        return unknown("progress_mode", init.progress_mode.into());
    }
    // Both flags are accepted and ignored, because any thread may call at any time anyway.
    if init.thread_mode & !THREAD_MODE_SINGLE != 0 {
        return unknown("thread_mode", init.thread_mode.into());
    }
    // All known traffic classes are accepted, and are treated alike.
    if init.traffic_class > TRAFFIC_NETWORK_CONTROL {
        return unknown("traffic_class", init.traffic_class);
    }
    let address_format = match init.addr_format {
        addr_format::UNSPEC | addr_format::NATIVE => AddressFormat::Any,
        addr_format::IPV4 => AddressFormat::Ipv4,
        addr_format::IPV6 => AddressFormat::Ipv6,
        other => return unknown("addr_format", other),
    };
    // SAFETY: the caller guarantees that the strings are null or zero-terminated.
    let (ip_subnet, auth_key) = unsafe {
        (
            text(init.ip_subnet, "ip_subnet")?,
            text(init.auth_key, "auth_key")?,
        )
    };
    Ok(Options {
        listen,
        ip_subnet: ip_subnet.map(str::to_owned),
        auth_key: auth_key.map(str::to_owned),
        max_unexpected_size: init.max_unexpected_size,
        max_expected_size: init.max_expected_size,
        busy: init.progress_mode & NO_BLOCK != 0,
        address_format,
        max_contexts: init.max_contexts.max(1),
    })
}

// ---- entries of the table ----

pub(crate) unsafe extern "C" fn initialize(
    class: *mut na_class,
    info: *const na_info,
    listen: bool,
) -> Return {
    events::to_log();
    let initialize = || -> Result {
        let completion_add = library::completion_add()?;
        // SAFETY: the library passes its own structures, whose version was just checked.
        let (class, info) = unsafe { (class.as_mut(), info.as_ref()) };
        let (Some(class), Some(info)) = (class, info) else {
            return Err(Failure::invalid("no class or info given"));
        };
        // SAFETY: the library's strings are null or zero-terminated.
        let (options, protocol, host) = unsafe {
            (
                options(&info.init, listen)?,
                text(info.protocol_name, "the protocol")?.unwrap_or_default(),
                text(info.host_name, "the host")?,
            )
        };
        let info = match host {
            Some(host) => format!("{protocol}://{host}"),
            None => protocol.to_owned(),
        };
        let made = PluginClass {
            class: Class::open(&info, &options, operation::complete)?,
            completion_add,
            contexts: AtomicUsize::new(0),
        };
        class.plugin_class = Box::into_raw(Box::new(made)).cast();
        Ok(())
    };
    // This failure is reported at a level that is shown by default, unlike other errors, because
    // nothing works without a class.
    report_at(Level::Fatal, Outlet::Class, c"initialize", initialize())
}

pub(crate) unsafe extern "C" fn finalize(class: *mut na_class) -> Return {
    let finalize = || -> Result {
        // SAFETY: the library passes its class.
        let plugin = unsafe {
            match class.as_mut() {
                None => return Err(Failure::invalid("no class given")),
                // The class is already finalized.
                Some(class) if class.plugin_class.is_null() => return Ok(()),
                Some(_) => class_of(class)?,
            }
        };
        let contexts = plugin.contexts.load(Ordering::Relaxed);
        if contexts > 0 {
            return Err(Failure::new(
                Return::Busy,
                format!("{contexts} contexts were not destroyed"),
            ));
        }
        plugin.class.leave();
        if plugin.class.is_shared() {
            let text = "addresses or memory handles were not freed; the class's memory and descriptors are kept until they are";
            log::write(Outlet::Class, Level::Warning, c"finalize", text);
        }
        // SAFETY: the library passes its class. `initialize` created the plugin's part, which is no
        // longer reachable.
        unsafe {
            let plugin = std::mem::replace(&mut (*class).plugin_class, ptr::null_mut());
            drop(Box::from_raw(plugin.cast::<PluginClass>()));
        }
        Ok(())
    };
    report(Outlet::Class, c"finalize", finalize())
}

/// Does nothing, because there is nothing to clean up.
pub(crate) unsafe extern "C" fn cleanup() {}

pub(crate) unsafe extern "C" fn has_opt_feature(_class: *mut na_class, flags: c_ulong) -> bool {
    flags == OPT_MULTI_RECV
}

/// Returns a numeric property of a class. Logs a line and returns 0 if the class is invalid.
///
/// # Safety
/// The class must be null or one of the library's.
unsafe fn known(
    class: *const na_class,
    call: &CStr,
    number: impl FnOnce(&Class) -> usize,
) -> usize {
    // SAFETY: the caller guarantees that the class is null or one of the library's.
    match unsafe { class_of(class) } {
        Ok(class) => number(&class.class),
        Err(failure) => {
            report(Outlet::Class, call, Err(failure));
            0
        }
    }
}

pub(crate) unsafe extern "C" fn msg_get_max_unexpected_size(class: *const na_class) -> usize {
    let call = c"msg_get_max_unexpected_size";
    // SAFETY: the library passes its class.
    unsafe { known(class, call, Class::max_unexpected_size) }
}

pub(crate) unsafe extern "C" fn msg_get_max_expected_size(class: *const na_class) -> usize {
    let call = c"msg_get_max_expected_size";
    // SAFETY: the library passes its class.
    unsafe { known(class, call, Class::max_expected_size) }
}

/// Returns 0, because the plugin reserves no part of a message's buffer.
pub(crate) unsafe extern "C" fn msg_get_header_size(_class: *const na_class) -> usize {
    0
}

pub(crate) unsafe extern "C" fn msg_get_max_tag(_class: *const na_class) -> u32 {
    u32::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init() -> na_init_info {
        na_init_info {
            ip_subnet: ptr::null(),
            auth_key: ptr::null(),
            max_unexpected_size: 0,
            max_expected_size: 0,
            progress_mode: 0,
            addr_format: 0,
            max_contexts: 1,
            thread_mode: 0,
            request_mem_device: 0,
            traffic_class: 0,
        }
    }

    fn read(init: &na_init_info) -> Result<Options> {
        // SAFETY: the strings are null or zero-terminated.
        unsafe { options(init, true) }
    }

    #[test]
    fn options_are_taken_over() {
        let defaults = Options {
            listen: true,
            ..Options::default()
        };
        assert_eq!(read(&init()), Ok(defaults.clone()));
        let all = na_init_info {
            ip_subnet: c"10.0.0.0/8".as_ptr(),
            auth_key: c"secret".as_ptr(),
            max_unexpected_size: 1,
            max_expected_size: 2,
            progress_mode: NO_BLOCK | NO_RETRY,
            addr_format: addr_format::IPV6,
            max_contexts: 0,
            thread_mode: THREAD_MODE_SINGLE,
            traffic_class: TRAFFIC_NETWORK_CONTROL,
            ..init()
        };
        let wanted = Options {
            ip_subnet: Some("10.0.0.0/8".to_owned()),
            auth_key: Some("secret".to_owned()),
            max_unexpected_size: 1,
            max_expected_size: 2,
            busy: true,
            address_format: AddressFormat::Ipv6,
            max_contexts: 1,
            ..defaults
        };
        assert_eq!(read(&all), Ok(wanted));
    }

    #[test]
    fn what_cannot_be_had_is_refused_by_name() {
        let code = |init: na_init_info, name: &str| {
            let failure = read(&init).unwrap_err();
            assert!(failure.reason.contains(name), "{failure}");
            failure.code
        };
        let device = na_init_info {
            request_mem_device: 1,
            ..init()
        };
        assert_eq!(code(device, "request_mem_device"), Return::OpNotSupported);
        let unknown: [(na_init_info, &str); 5] = [
            (
                na_init_info {
                    progress_mode: 4,
                    ..init()
                },
                "progress_mode",
            ),
            (
                na_init_info {
                    thread_mode: 8,
                    ..init()
                },
                "thread_mode",
            ),
            (
                na_init_info {
                    traffic_class: 7,
                    ..init()
                },
                "traffic_class",
            ),
            (
                na_init_info {
                    addr_format: 4,
                    ..init()
                },
                "addr_format",
            ),
            (
                na_init_info {
                    auth_key: c"\xff".as_ptr(),
                    ..init()
                },
                "auth_key",
            ),
        ];
        for (init, name) in unknown {
            assert_eq!(code(init, name), Return::InvalidArg);
        }
    }
}
