//! A table of settings with their values, and the combination of several tables.

use crate::{SettingsError, Value, ValueKind};

/// One setting, with everything needed to read, check and print it except its position in the
/// table.
#[derive(Debug)]
pub struct Row {
    /// The environment variable.
    pub name: &'static str,
    /// The values that the setting accepts.
    pub kind: ValueKind,
    /// The behaviour while the setting is unset. Empty if the setting has a default value.
    pub unset: &'static str,
    /// The warning for users who set the setting. Empty if there is none.
    pub warning: &'static str,
    /// The meaning of the setting, on one line.
    pub meaning: &'static str,
    /// The networks to whose peers the setting applies, or `all`, or the name of the program that
    /// reads the setting.
    pub networks: &'static [&'static str],
    /// The content of `networks` as text, followed by any other places where the setting has an
    /// effect.
    pub acts: &'static str,
    /// A special property, if the setting has one.
    pub attribute: Option<Attribute>,
}

/// A special property of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// All ranks must have the same value.
    SameOnAllRanks,
    /// Only tests need the setting.
    ForTests,
}

/// The set of a group's rows whose values came from the environment rather than from their
/// defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origins(u64);

impl Origins {
    /// The maximum number of rows in a group.
    pub const MOST: usize = u64::BITS as usize;

    /// Records that the environment has set this row.
    pub fn insert(&mut self, row: usize) {
        self.0 |= 1 << row;
    }

    /// Returns whether the environment has set this row.
    #[must_use]
    pub fn contains(self, row: usize) -> bool {
        self.0 >> row & 1 == 1
    }
}

/// A table of settings with their values. [`group!`](crate::group!) implements it.
pub trait Group {
    /// Returns the table.
    fn rows(&self) -> &'static [Row];
    /// Returns the value of a row, or `None` if the row is unset and has no default.
    fn get(&self, row: usize) -> Option<Value>;
    /// Sets a row to a value from the environment. Returns `false` if the value does not fit the
    /// field.
    fn put(&mut self, row: usize, value: Value) -> bool;
    /// Returns the rows that the environment has set.
    fn origins(&self) -> Origins;
    /// Returns the settings that must be the same on all ranks, with their values. Each line
    /// contains one setting.
    fn agreement(&self) -> String {
        let rows = self.rows().iter().enumerate();
        let same = rows.filter(|(_, row)| row.attribute == Some(Attribute::SameOnAllRanks));
        let lines = same.map(|(at, row)| match self.get(at) {
            Some(value) => format!("{}={value}\n", row.name),
            None => format!("{}=(unset)\n", row.name),
        });
        lines.collect()
    }
    /// Checks the rules that involve several settings.
    ///
    /// # Errors
    /// If two settings contradict each other.
    fn check(&self) -> Result<(), SettingsError>;
}

/// Defines a struct with a field for each entry of a table. The struct is a [`Group`]. To add a
/// setting, it suffices to add an entry:
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
/// An entry consists of the variable, the field with its type and default, and the [accepted
/// values](crate::ValueKind). These are followed by the behaviour while the setting is unset (if it
/// has no default), an optional warning for its users, its meaning, the networks on which it has an
/// effect (if they differ from the group's), and an optional [`Attribute`](crate::Attribute). The
/// texts for users mention the attribute too.
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
            /// The fields that the environment has set.
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

/// Defines a struct with a field for each group of settings. The groups are [read
/// together](crate::Groups). To add a group, it suffices to add a line.
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
