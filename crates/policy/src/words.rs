//! Enums whose variants are keywords.

/// Defines an enum with a keyword for each variant, and the associated items [`ALL`], `as_str` and
/// `named`.
///
/// [`ALL`]: crate::step::Sub::ALL
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// All variants, in declaration order.
            $vis const ALL: [$name; [$($word),+].len()] = [$($name::$variant),+];

            /// Returns the variant's keyword.
            $vis const fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)+
                }
            }

            /// Returns the variant with this keyword.
            $vis fn named(word: &str) -> Option<$name> {
                $name::ALL.into_iter().find(|one| one.as_str() == word)
            }
        }
    };
}
pub(crate) use words;
