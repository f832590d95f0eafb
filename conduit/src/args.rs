//! Typed arguments of active messages. They are tuples or structs of numbers that occupy up to
//! sixteen words of 32 bits.

/// The maximum number of argument words in a message.
pub const MAX_ARG_WORDS: usize = am::MAX_ARGS;

/// A number or `bool` that occupies one or two argument words.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number or `bool`, so it cannot be an argument of a message",
    note = "send other data as the payload of a medium"
)]
pub trait Word: Copy + sealed::Sealed {
    /// The number of words that a value occupies.
    const WORDS: usize;
    /// Writes the value to the front of `words`.
    fn write(self, words: &mut [u32]);
    /// Reads a value from the front of `words`, which holds at least [`Word::WORDS`] words.
    fn read(words: &[u32]) -> Self;
}

macro_rules! one_word {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Word for $type {
            const WORDS: usize = 1;
            #[inline]
            fn write(self, words: &mut [u32]) {
                words[0] = u32::from_ne_bytes(self.to_ne_bytes());
            }
            #[inline]
            fn read(words: &[u32]) -> Self {
                <$type>::from_ne_bytes(words[0].to_ne_bytes())
            }
        }
    )*};
}
one_word!(u32, i32, f32);

macro_rules! part_of_a_word {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Word for $type {
            const WORDS: usize = 1;
            #[inline]
            fn write(self, words: &mut [u32]) {
                words[0] = self as u32;
            }
            #[inline]
            fn read(words: &[u32]) -> Self {
                words[0] as Self
            }
        }
    )*};
}
part_of_a_word!(u8, i8, u16, i16);

impl sealed::Sealed for bool {}
impl Word for bool {
    const WORDS: usize = 1;
    #[inline]
    fn write(self, words: &mut [u32]) {
        words[0] = self.into();
    }
    #[inline]
    fn read(words: &[u32]) -> Self {
        words[0] != 0
    }
}

macro_rules! two_words {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Word for $type {
            const WORDS: usize = 2;
            #[inline]
            fn write(self, words: &mut [u32]) {
                let bits = u64::from_ne_bytes(self.to_ne_bytes());
                words[0] = bits as u32;
                words[1] = (bits >> 32) as u32;
            }
            #[inline]
            fn read(words: &[u32]) -> Self {
                let bits = u64::from(words[0]) | u64::from(words[1]) << 32;
                <$type>::from_ne_bytes(bits.to_ne_bytes())
            }
        }
    )*};
}
two_words!(u64, i64, f64);

/// Offsets and lengths travel as 64 bits.
impl Word for usize {
    const WORDS: usize = 2;
    #[inline]
    fn write(self, words: &mut [u32]) {
        (self as u64).write(words);
    }
    #[inline]
    fn read(words: &[u32]) -> Self {
        u64::read(words) as Self
    }
}
impl sealed::Sealed for usize {}

/// The arguments of a handler: a tuple of [`Word`]s, or a struct of them defined by
/// [`args!`](crate::args). They occupy at most [`MAX_ARG_WORDS`] words, which is checked at compile
/// time.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a message",
    note = "arguments are a tuple of numbers or `bool`: `(key,)` for one, `(key, value)` for two",
    note = "`conduit::args!` defines a struct of them"
)]
pub trait Args: Copy {
    /// The number of words that the arguments occupy.
    const WORDS: usize;
    /// Returns the argument types as text. Errors show this text, and ranks compare it.
    fn types() -> String;
    /// Writes the arguments to `words` and returns the words used.
    fn write(self, words: &mut [u32; MAX_ARG_WORDS]) -> &[u32];
    /// Reads the arguments from exactly [`Args::WORDS`] words.
    fn read(words: &[u32]) -> Self;
}

macro_rules! tuple {
    ($($name:ident)*) => {
        impl<$($name: Word),*> Args for ($($name,)*) {
            const WORDS: usize = {
                let words = 0 $(+ $name::WORDS)*;
                assert!(words <= MAX_ARG_WORDS, "an active message has at most 16 argument words");
                words
            };
            fn types() -> String {
                let types: &[&str] = &[$(std::any::type_name::<$name>()),*];
                format!("({})", types.join(", "))
            }
            #[inline]
            #[allow(non_snake_case, unused_mut, unused_variables, unused_assignments)]
            fn write(self, words: &mut [u32; MAX_ARG_WORDS]) -> &[u32] {
                let ($($name,)*) = self;
                let mut at = 0;
                $( $name.write(&mut words[at..]); at += $name::WORDS; )*
                &words[..Self::WORDS]
            }
            #[inline]
            #[allow(non_snake_case, unused_mut, unused_variables, unused_assignments, clippy::unused_unit)]
            fn read(words: &[u32]) -> Self {
                let mut at = 0;
                $( let $name = $name::read(&words[at..]); at += $name::WORDS; )*
                ($($name,)*)
            }
        }
    };
}
tuple!();
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
tuple!(A B C D E F G);
tuple!(A B C D E F G H);
tuple!(A B C D E F G H I);
tuple!(A B C D E F G H I J);
tuple!(A B C D E F G H I J K);
tuple!(A B C D E F G H I J K L);
tuple!(A B C D E F G H I J K L O);
tuple!(A B C D E F G H I J K L O P);
tuple!(A B C D E F G H I J K L O P Q);
tuple!(A B C D E F G H I J K L O P Q R);

mod sealed {
    pub trait Sealed {}
}

/// Defines a struct of [`Word`]s that serves as the arguments of a handler. The struct is `Clone`
/// and `Copy`.
///
/// ```
/// conduit::args! {
///     /// The key to insert, and its slot.
///     #[derive(Debug, PartialEq)]
///     pub struct Insert {
///         key: u64,
///         slot: u16,
///         overwrite: bool,
///     }
/// }
///
/// # fn main() -> conduit::Result<()> {
/// let mut handlers = conduit::Handlers::new();
/// let insert = handlers.short(|_, insert: Insert| assert_eq!(insert.slot, 3));
/// let conduit = conduit::start()?.attach(handlers, 0)?;
/// conduit.request(conduit.rank(), insert, Insert { key: 1 << 40, slot: 3, overwrite: true })?;
/// conduit.finish()
/// # }
/// ```
#[macro_export]
macro_rules! args {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),+ $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)+
        }

        impl $crate::Args for $name {
            const WORDS: usize = {
                let words = 0 $(+ <$type as $crate::Word>::WORDS)+;
                assert!(
                    words <= $crate::MAX_ARG_WORDS,
                    "an active message has at most 16 argument words"
                );
                words
            };
            fn types() -> String {
                let fields = [$(concat!(stringify!($field), ": ", stringify!($type))),+];
                format!("{} {{ {} }}", stringify!($name), fields.join(", "))
            }
            #[inline]
            fn write(self, words: &mut [u32; $crate::MAX_ARG_WORDS]) -> &[u32] {
                let mut rest = &mut words[..];
                $(
                    $crate::Word::write(self.$field, rest);
                    rest = &mut rest[<$type as $crate::Word>::WORDS..];
                )+
                let _ = rest;
                &words[..<Self as $crate::Args>::WORDS]
            }
            #[inline]
            fn read(words: &[u32]) -> Self {
                let mut rest = words;
                $(
                    let $field = <$type as $crate::Word>::read(rest);
                    rest = &rest[<$type as $crate::Word>::WORDS..];
                )+
                let _ = rest;
                Self { $($field),+ }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_arguments_survive() {
        type Mixed = (u32, i64, f32, f64, usize);
        let args: Mixed = (7, -8, 1.5, -2.25, usize::MAX);
        let mut words = [0; 16];
        let used = args.write(&mut words);
        assert_eq!(used.len(), 8);
        assert_eq!(<Mixed as Args>::read(used), args);
        assert_eq!(Mixed::types(), "(u32, i64, f32, f64, usize)");
    }

    #[test]
    fn small_arguments_survive() {
        type Small = (u8, i8, u16, i16, bool, bool);
        let args: Small = (255, -128, 65_535, -32_768, true, false);
        let mut words = [0; 16];
        assert_eq!(<Small as Args>::read(args.write(&mut words)), args);
    }

    #[test]
    fn a_struct_of_arguments_survives() {
        crate::args! {
            #[derive(Debug, PartialEq)]
            struct Insert {
                key: u64,
                slot: i16,
                new: bool,
            }
        }
        let args = Insert {
            key: 1 << 40,
            slot: -3,
            new: true,
        };
        let mut words = [0; 16];
        let used = args.write(&mut words);
        assert_eq!(used.len(), 4);
        assert_eq!(Insert::read(used), args);
        assert_eq!(Insert::types(), "Insert { key: u64, slot: i16, new: bool }");
    }

    #[test]
    fn none_and_sixteen() {
        let mut words = [0; 16];
        assert_eq!(().write(&mut words).len(), 0);
        let all = (
            1u32, 2u32, 3u32, 4u32, 5u32, 6u32, 7u32, 8u32, 9u64, 10u64, 11u64, 12u64,
        );
        assert_eq!(all.write(&mut words).len(), 16);
    }
}
