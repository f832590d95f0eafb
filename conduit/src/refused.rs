//! Programs that the type system rejects. Each of them follows a program that compiles and that
//! differs from it in one place.

/// A request must carry the arguments that its handler takes.
///
/// ```no_run
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.short(|_, (number,): (u64,)| println!("{number}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request(0, add, (1u64,))?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0308
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.short(|_, (number,): (u64,)| println!("{number}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request(0, add, (1.0f64,))?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Arguments;

/// A handler of mediums can be used only with medium requests.
///
/// ```no_run
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), bytes: &[u8]| println!("{bytes:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request_medium(0, add, (), &[1])?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0308
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), bytes: &[u8]| println!("{bytes:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request(0, add, ())?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Kind;

/// A payload must have the type that its handler takes.
///
/// ```no_run
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), keys: &[u32]| println!("{keys:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request_medium(0, add, (), &[1u32, 2])?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0308
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), keys: &[u32]| println!("{keys:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request_medium(0, add, (), &[1u64, 2])?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct PayloadType;

/// Arguments must not take more than sixteen words.
///
/// ```
/// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
/// handlers.short(|_, _: (u64, u64, u64, u64, u64, u64, u64, u64)| ());
/// ```
/// ```compile_fail,E0080
/// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
/// handlers.short(|_, _: (u64, u64, u64, u64, u64, u64, u64, u64, u8)| ());
/// ```
struct Words;

/// The types of values that are moved between ranks must have no padding, no references and no
/// invalid bit patterns.
///
/// ```no_run
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// conduit.put(0, 0, &1u8)?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0277
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// conduit.put(0, 0, &"text")?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0277
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// conduit.get(&mut true, 0, 0)?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Values;

/// A handle can be waited for only once.
///
/// ```no_run
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 8)?;
/// let handle = conduit.put_nb(0, 0, &1u8)?;
/// conduit.wait(handle)?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0382
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 8)?;
/// let handle = conduit.put_nb(0, 0, &1u8)?;
/// conduit.wait(handle)?;
/// conduit.wait(handle)?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Handles;

/// A prepared payload can be sent or cancelled only once, and cannot be written afterwards.
///
/// ```no_run
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), bytes: &[u8]| println!("{bytes:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// let mut medium = conduit.prepare_medium(0, 8, 8)?;
/// medium.payload().fill(1);
/// medium.commit(add, (), 8)?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0382
/// # let mut handlers = conduit::Handlers::new();
/// # let add = handlers.medium(|_, (), bytes: &[u8]| println!("{bytes:?}"));
/// # let conduit = conduit::start()?.attach(handlers, 0)?;
/// let mut medium = conduit.prepare_medium(0, 8, 8)?;
/// medium.commit(add, (), 8)?;
/// medium.payload().fill(1);
/// # Ok::<(), conduit::Error>(())
/// ```
struct Prepared;

/// Buffers remain borrowed until their scope ends. Until then, sources cannot be written and
/// destinations cannot be read.
///
/// ```no_run
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 64)?;
/// let (source, mut destination) = ([1u64], [0u64]);
/// conduit.scope(|scope| {
///     scope.put(0, 0, &source)?;
///     scope.get(&mut destination, 0, 8)
/// })?;
/// println!("{destination:?}");
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0502
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 64)?;
/// let (source, mut destination) = ([1u64], [0u64]);
/// conduit.scope(|scope| {
///     scope.put(0, 0, &source)?;
///     scope.get(&mut destination, 0, 8)?;
///     println!("{destination:?}");
///     Ok(())
/// })?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0597
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 64)?;
/// conduit.scope(|scope| {
///     let source = [1u64];
///     scope.put(0, 0, &source)
/// })?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Scopes;

/// The payload that a handler borrows cannot outlive the call of the handler.
///
/// ```
/// let kept = std::rc::Rc::new(std::cell::Cell::new(0));
/// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
/// handlers.medium(move |_, (), bytes: &[u8]| kept.set(bytes.len()));
/// ```
/// ```compile_fail
/// let kept = std::rc::Rc::new(std::cell::Cell::new(&[][..]));
/// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
/// handlers.medium(move |_, (), bytes: &[u8]| kept.set(bytes));
/// ```
struct Lent;

/// A `Segment` cannot outlive its `Conduit`.
///
/// ```no_run
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 64)?;
/// let segment = conduit.segment();
/// segment.put(0, &1u64)?;
/// drop(conduit);
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0505
/// let conduit = conduit::start()?.attach(conduit::Handlers::new(), 64)?;
/// let segment = conduit.segment();
/// drop(conduit);
/// segment.put(0, &1u64)?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Lives;

/// A sequential rank and its handlers must stay on their thread. In the other modes, any thread may
/// run a handler, so handlers must be `Send` and `Sync`.
///
/// ```no_run
/// let conduit = conduit::start_as::<conduit::Par>()?.attach(conduit::Handlers::new(), 64)?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| conduit.poll());
/// });
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0277
/// let conduit = conduit::start_as::<conduit::Seq>()?.attach(conduit::Handlers::new(), 64)?;
/// std::thread::scope(|threads| {
///     threads.spawn(|| conduit.poll());
/// });
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```
/// let count = std::rc::Rc::new(std::cell::Cell::new(0));
/// let mut handlers = conduit::Handlers::<conduit::Seq>::new();
/// handlers.short(move |_, ()| count.set(count.get() + 1));
/// ```
/// ```compile_fail,E0277
/// let count = std::rc::Rc::new(std::cell::Cell::new(0));
/// let mut handlers = conduit::Handlers::<conduit::Par>::new();
/// handlers.short(move |_, ()| count.set(count.get() + 1));
/// ```
/// ```compile_fail,E0277
/// let handlers = conduit::Handlers::<conduit::Seq>::new();
/// std::thread::spawn(move || drop(handlers));
/// ```
/// ```compile_fail,E0200
/// // Nor can a program declare its own handler type runnable by any thread.
/// trait Mine: for<'a, 'b> Fn(&'a conduit::Call<'b, conduit::Par>, ()) {}
/// impl conduit::threads::Runs<Box<dyn Mine>> for conduit::Par {}
/// ```
struct Threads;

/// Built-in reductions support only numbers of 32 and 64 bits. Other types need a function.
///
/// ```no_run
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// conduit.reduce_all_with(&mut [1u8], |one, other| one.max(other))?;
/// # Ok::<(), conduit::Error>(())
/// ```
/// ```compile_fail,E0277
/// # let conduit = conduit::start()?.attach(conduit::Handlers::new(), 0)?;
/// conduit.reduce_all(conduit::ReduceOp::Max, &mut [1u8])?;
/// # Ok::<(), conduit::Error>(())
/// ```
struct Reductions;
