//! Typed arguments of active messages: tuples of numbers, carried in up to sixteen 32-bit words.

/// A number that travels as one or two argument words.
pub trait Word: Copy + sealed::Sealed {
    /// Words it takes.
    const WORDS: usize;
    /// Writes itself to the front of `words`.
    fn write(self, words: &mut [u32]);
    /// Reads itself from the front of `words`, which has at least [`Word::WORDS`].
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

/// The arguments of a handler: a tuple of [`Word`]s of at most 16 words together (checked when the program is compiled).
pub trait Args: Copy + sealed::Sealed {
    /// Words they take.
    const WORDS: usize;
    /// Writes them and gives the words used.
    fn write(self, words: &mut [u32; am::MAX_ARGS]) -> &[u32];
    /// Reads them from exactly [`Args::WORDS`] words.
    fn read(words: &[u32]) -> Self;
}

macro_rules! tuple {
    ($($name:ident)*) => {
        impl<$($name: Word),*> sealed::Sealed for ($($name,)*) {}
        impl<$($name: Word),*> Args for ($($name,)*) {
            const WORDS: usize = {
                let words = 0 $(+ $name::WORDS)*;
                assert!(words <= am::MAX_ARGS, "an active message has at most 16 argument words");
                words
            };
            #[inline]
            #[allow(non_snake_case, unused_mut, unused_variables, unused_assignments)]
            fn write(self, words: &mut [u32; am::MAX_ARGS]) -> &[u32] {
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
