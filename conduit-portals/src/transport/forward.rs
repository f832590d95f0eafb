//! Macros that forward calls, for transports over other transports and for handlers between layers.

/// Implements methods of [`Transport`](crate::transport::Transport) and
/// [`OpenTransport`](crate::transport::open::OpenTransport) that call the transport below, or
/// methods of [`FragmentHandler`](crate::transport::fragment::FragmentHandler) that call the
/// handler above. The transport or handler to be called is a field of a structure, or the content
/// of an enum's variant, bound to the name before `in`.
///
/// ```
/// use conduit_portals::forward_transport;
/// use conduit_portals::transport::Transport;
///
/// enum Either<A, B> {
///     One(A),
///     Other(B),
/// }
///
/// impl<A: Transport, B: Transport> Transport for Either<A, B> {
///     forward_transport!(to in [Self::One(to), Self::Other(to)]:
///         send, receive, transmit, outstanding, settle, timeout, waiter, abandon, describe);
/// }
/// ```
#[macro_export]
macro_rules! forward_transport {
    ($to:ident in $all:tt: $($method:ident),+) => { $($crate::forward_transport!(@$method $to $all);)+ };

    (@send $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ send(
        peer: u32, fragment: &$crate::transport::fragment::Fragment<'_>
    ) -> Result<(), $crate::transport::fragment::Refused>); };
    (@receive $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ receive(
        handler: &mut impl $crate::transport::fragment::FragmentHandler
    ) -> bool); };
    (@transmit $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ transmit(
        handler: &mut impl $crate::transport::fragment::FragmentHandler
    ) -> ()); };
    (@is_idle $($to:tt)+) => { $crate::forward_transport!(& $($to)+ is_idle(peer: u32) -> bool); };
    (@outstanding $($to:tt)+) => { $crate::forward_transport!(& $($to)+ outstanding(peer: u32) -> usize); };
    (@settle $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ settle(peer: u32) -> ()); };
    (@timeout $($to:tt)+) => { $crate::forward_transport!(& $($to)+ timeout() -> Option<::std::time::Duration>); };
    (@waiter $($to:tt)+) => { $crate::forward_transport!(& $($to)+ waiter(
    ) -> ::std::sync::Arc<dyn $crate::transport::Wait>); };
    (@abandon $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ abandon(
        peers: &[u32], handler: &mut impl $crate::transport::fragment::FragmentHandler
    ) -> ()); };
    (@describe $($to:tt)+) => { $crate::forward_transport!(& $($to)+ describe(peer: u32) -> String); };
    (@has_direct $($to:tt)+) => { $crate::forward_transport!(& $($to)+ has_direct() -> bool); };
    (@has_atomic $($to:tt)+) => { $crate::forward_transport!(& $($to)+ has_atomic(
        op: ::conduit_core::ni::AtomicOp, ty: ::conduit_core::ni::AtomicType, fetch: bool
    ) -> bool); };
    (@atomic $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ atomic(
        peer: u32, remote: $crate::transport::Remote, atomic: &$crate::transport::NativeAtomic
    ) -> Result<(), $crate::transport::fragment::Refused>); };
    (@expose $($to:tt)+) => { $crate::forward_transport!(unsafe $($to)+ expose(
        base: *mut u8, len: usize
    ) -> Result<Option<$crate::transport::Remote>, String>); };
    (@write $($to:tt)+) => { $crate::forward_transport!(unsafe $($to)+ write(
        peer: u32, access: &$crate::transport::Access
    ) -> Result<(), $crate::transport::fragment::Refused>); };
    (@read $($to:tt)+) => { $crate::forward_transport!(unsafe $($to)+ read(
        peer: u32, access: &$crate::transport::Access
    ) -> Result<(), $crate::transport::fragment::Refused>); };

    (@address $($to:tt)+) => { $crate::forward_transport!(& $($to)+ address() -> &[u8]); };
    (@address_to_text $($to:tt)+) => { $crate::forward_transport!(& $($to)+ address_to_text(
        address: &[u8]
    ) -> Option<String>); };
    (@address_of_text $($to:tt)+) => { $crate::forward_transport!(& $($to)+ address_of_text(
        text: &str
    ) -> Result<Vec<u8>, $crate::transport::open::ConnectError>); };
    (@connect $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ connect(
        address: &[u8]
    ) -> Result<u32, $crate::transport::open::ConnectError>); };
    (@peer_address $($to:tt)+) => { $crate::forward_transport!(& $($to)+ peer_address(
        peer: u32
    ) -> Option<Vec<u8>>); };
    (@has_session $($to:tt)+) => { $crate::forward_transport!(& $($to)+ has_session(peer: u32) -> bool); };
    (@end_session $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ end_session(peer: u32) -> ()); };
    (@close $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ close(peer: u32) -> ()); };
    (@leave $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ leave() -> ()); };
    (@prepare_sleep $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ prepare_sleep() -> bool); };
    (@descriptors $to:ident $all:tt) => {
        fn descriptors<'a>(&'a self, into: &mut Vec<::std::os::fd::BorrowedFd<'a>>) {
            $crate::forward_transport!(self $to $all descriptors(into))
        }
    };

    (@place $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ place(id: u64, offset: usize, bytes: &[u8]) -> ()); };
    (@end $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ end(id: u64) -> ()); };
    (@done $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ done(peer: u32, token: u64, value: u64) -> ()); };
    (@joined $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ joined(peer: u32) -> ()); };
    (@link_idle $($to:tt)+) => { $crate::forward_transport!(&mut $($to)+ link_idle(peer: u32) -> ()); };
    (@room $($to:tt)+) => { $crate::forward_transport!(& $($to)+ room() -> usize); };

    (& $to:ident $all:tt $method:ident($($name:ident: $type:ty),*) -> $result:ty) => {
        #[inline]
        fn $method(&self, $($name: $type),*) -> $result {
            $crate::forward_transport!(self $to $all $method($($name),*))
        }
    };
    (&mut $to:ident $all:tt $method:ident($($name:ident: $type:ty),*) -> $result:ty) => {
        #[inline]
        fn $method(&mut self, $($name: $type),*) -> $result {
            $crate::forward_transport!(self $to $all $method($($name),*))
        }
    };
    (unsafe $to:ident $all:tt $method:ident($($name:ident: $type:ty),*) -> $result:ty) => {
        #[inline]
        unsafe fn $method(&mut self, $($name: $type),*) -> $result {
            // SAFETY: the caller keeps the contract of the forwarded method, which is the same.
            unsafe { $crate::forward_transport!(self $to $all $method($($name),*)) }
        }
    };
    ($self:ident $to:ident [$($one:pat),+] $method:ident $arguments:tt) => {
        match $self { $($one => $to.$method $arguments),+ }
    };
}
