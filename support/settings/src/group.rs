//! A table of settings with their values, and what is made of several.

use crate::{SettingsError, Value, ValueKind};

/// One setting, with everything that reading, checking and printing it needs but its place.
#[derive(Debug)]
pub struct Row {
    /// The environment variable.
    pub name: &'static str,
    /// What it takes.
    pub kind: ValueKind,
    /// What happens while it has no value; empty where the default is a value.
    pub unset: &'static str,
    /// Said to the user who sets it; empty for none.
    pub warning: &'static str,
    /// One line.
    pub meaning: &'static str,
    /// The networks to whose peers it makes a difference, `all`, or the program that reads it.
    pub networks: &'static [&'static str],
    /// The same as text, with further cases.
    pub acts: &'static str,
    /// What else is to be known of it.
    pub attribute: Option<Attribute>,
}

/// What else is to be known of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// All ranks must have the same value.
    SameOnAllRanks,
    /// Only tests need it.
    ForTests,
}

/// Which settings of a group came from the environment rather than from their defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins(u64);

impl Origins {
    /// Rows that a group may have.
    pub const MOST: usize = u64::BITS as usize;

    /// The environment has set this row.
    pub fn insert(&mut self, row: usize) {
        self.0 |= 1 << row;
    }

    /// Whether it has.
    #[must_use]
    pub fn contains(self, row: usize) -> bool {
        self.0 >> row & 1 == 1
    }
}

/// The values of a table of settings. Made by [`group!`](crate::group!).
pub trait Group {
    /// The table.
    fn rows(&self) -> &'static [Row];
    /// The value of a row.
    fn get(&self, row: usize) -> Option<Value>;
    /// Sets a row, as the environment says. False when the value does not fit the field.
    fn put(&mut self, row: usize, value: Value) -> bool;
    /// Which rows the environment has set.
    fn origins(&self) -> Origins;
    /// The settings that must be the same on all ranks, with their values, one on each line.
    fn agreement(&self) -> String {
        let rows = self.rows().iter().enumerate();
        let same = rows.filter(|(_, row)| row.attribute == Some(Attribute::SameOnAllRanks));
        let lines = same.map(|(at, row)| match self.get(at) {
            Some(value) => format!("{}={value}\n", row.name),
            None => format!("{}=(unset)\n", row.name),
        });
        lines.collect()
    }
    /// Rules that concern more than one setting.
    ///
    /// # Errors
    /// Two contradict each other.
    fn check(&self) -> Result<(), SettingsError>;
}

/// A struct with a field for each entry of a table, which is a [`Group`]. A new setting is one entry and nothing else:
///
/// ```
/// settings::group! {
///     /// Settings of tea.
///     pub struct Settings, acts [all], check Settings::agree;
///
///     "CONDUIT_SUGAR" sugar: u32 = 2, settings::ValueKind::integer(0, 10),
///         "lumps of sugar", is SameOnAllRanks;
///     "CONDUIT_MILK" milk: Option<String> = None,
///         settings::ValueKind::Text("the name of an animal"),
///         unset "whatever is there", warning "milk is taken on purpose",
///         "whose milk is taken", acts [udp, ofi] and "shm: at breakfast", is ForTests;
/// }
///
/// impl Settings {
///     fn agree(&self) -> Result<(), settings::SettingsError> {
///         Ok(())
///     }
/// }
/// # fn main() {
/// # use settings::Group as _;
/// let [sugar, milk] = Settings::default().rows() else { unreachable!() };
/// assert_eq!(sugar.meaning, "lumps of sugar; the same on all ranks");
/// assert_eq!(milk.meaning, "for tests: whose milk is taken");
/// assert_eq!(milk.warning, "for tests: milk is taken on purpose");
/// assert_eq!((milk.networks, milk.acts), (&["udp", "ofi"][..], "udp, ofi; shm: at breakfast"));
/// # }
/// ```
///
/// An entry has the variable, the field with its type and default, what is
/// [accepted](crate::ValueKind), what happens while it is unset if the default is none, what its
/// user is warned of, if anything, its meaning, where it acts if not where the group does, and an
/// [`Attribute`](crate::Attribute), which the texts for users say as well.
#[macro_export]
macro_rules! group {
    (@networks $group:tt [$($own:ident),+]) => { $crate::group!(@networks [$($own),+]) };
    (@networks [$($network:ident),+]) => { &[$(stringify!($network)),+] };
    (@acts $group:tt [$($own:ident),+] $($more:literal)?) => { $crate::group!(@acts [$($own),+] $($more)?) };
    (@acts [$first:ident $(, $network:ident)*] $($more:literal)?) => {
        concat!(stringify!($first) $(, ", ", stringify!($network))* $(, "; ", $more)?)
    };
    (@attribute) => { None };
    (@attribute $is:ident) => { Some($crate::Attribute::$is) };
    (@text ForTests: $text:literal) => { concat!("for tests: ", $text) };
    (@text SameOnAllRanks: $text:literal) => { concat!($text, "; the same on all ranks") };
    (@text: $text:literal) => { $text };
    (@warning ForTests: $text:literal) => { $crate::group!(@text ForTests: $text) };
    (@warning $($is:ident)?: $($text:literal)?) => { concat!($($text)?) };
    (
        $(#[$attribute:meta])*
        pub struct $settings:ident, acts $acts:tt $(, check $check:path)?;
        $(
            $name:literal $field:ident: $type:ty = $default:expr, $kind:expr,
            $(unset $unset:literal,)? $(warning $warning:literal,)?
            $meaning:literal $(, acts $own:tt $(and $more:literal)?)? $(, is $is:ident)?;
        )*
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(clippy::struct_excessive_bools)]
        pub struct $settings {
            $(
                #[doc = concat!("`", $name, "`: ", $crate::group!(@text $($is)?: $meaning), ".")]
                $(#[doc = concat!("\n\nUnset: ", $unset, ".")])?
                pub $field: $type,
            )*
            /// Which of the fields the environment has set.
            pub origins: $crate::Origins,
        }

        impl Default for $settings {
            fn default() -> Self {
                Self {
                    $($field: $default,)*
                    origins: $crate::Origins::default(),
                }
            }
        }

        impl $crate::Group for $settings {
            fn rows(&self) -> &'static [$crate::Row] {
                static ROWS: &[$crate::Row] = &[$(
                    $crate::Row {
                        name: $name,
                        kind: $kind,
                        unset: concat!($($unset)?),
                        warning: $crate::group!(@warning $($is)?: $($warning)?),
                        meaning: $crate::group!(@text $($is)?: $meaning),
                        networks: $crate::group!(@networks $acts $($own)?),
                        acts: $crate::group!(@acts $acts $($own $($more)?)?),
                        attribute: $crate::group!(@attribute $($is)?),
                    },
                )*];
                const { assert!(ROWS.len() <= $crate::Origins::MOST) };
                ROWS
            }

            fn get(&self, row: usize) -> Option<$crate::Value> {
                let fields: &[fn(&Self) -> Option<$crate::Value>] =
                    &[$(|settings| $crate::Field::to_value(&settings.$field)),*];
                fields[row](self)
            }

            fn put(&mut self, row: usize, value: $crate::Value) -> bool {
                let fields: &[fn(&mut Self, $crate::Value) -> Option<()>] =
                    &[$(|settings, value| {
                        settings.$field = $crate::Field::from_value(value)?;
                        Some(())
                    }),*];
                let fits = fields[row](self, value).is_some();
                if fits {
                    self.origins.insert(row);
                }
                fits
            }

            fn origins(&self) -> $crate::Origins {
                self.origins
            }

            fn check(&self) -> Result<(), $crate::SettingsError> {
                $($check(self)?;)?
                Ok(())
            }
        }
    };
}

/// A struct of groups, which is read as a [whole](crate::Groups). A new group is one line.
#[macro_export]
macro_rules! compose {
    (
        $(#[$attribute:meta])*
        pub struct $settings:ident {
            $($(#[$doc:meta])* $field:ident: $group:ty,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $settings {
            $($(#[$doc])* pub $field: $group,)*
        }

        impl $crate::Groups for $settings {
            fn groups(&self) -> Vec<&dyn $crate::Group> {
                vec![$(&self.$field),*]
            }

            fn groups_mut(&mut self) -> Vec<&mut dyn $crate::Group> {
                vec![$(&mut self.$field),*]
            }
        }
    };
}
