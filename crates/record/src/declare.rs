//! Macros that declare messages, nest or inline them in other messages, and declare closed sets of
//! words.

/// Declares a message: its protobuf name, its version (if versioned), and its fields. Each field
/// has a protobuf number and may have options, which are methods of [`Field`](crate::Field). `let`
/// declares a computed field, which is written but not stored.
macro_rules! message {
    (
        $(#[doc = $about:literal])*
        $(#[derive($derive:ident)])?
        pub $(($within:ident))? struct $Name:ident as $proto:literal $(version $version:ident)? {
            $(
                $(#[doc = $doc:literal])*
                pub $(($scope:ident))? $field:ident: $type:ty = $tag:literal $(, $option:ident $(($argument:expr))?)*;
                $(let $computed:ident: $of:ty = $value:path, $say:literal $(, $mark:ident)*;)*
            )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Debug, Clone, PartialEq, Eq $(, $derive)?)]
        pub $(($within))? struct $Name {
            $($(#[doc = $doc])* pub $(($scope))? $field: $type,)*
        }

        impl $crate::value::Message for $Name {
            fn declared(&self) -> &'static $crate::field::Declared {
                <Self as $crate::value::Build>::DECLARED
            }

            fn put_all<'a>(&'a self, to: &mut $crate::value::Put<'_, 'a>) {
                $(
                    $crate::value::Type::put(&self.$field, to);
                    $(to.put($value(self).into());)*
                )*
            }

            fn slot(&mut self, index: usize) -> Option<&mut dyn $crate::value::Slot> {
                let first = 0;
                $(
                    if index < first + <$type as $crate::value::Type>::WIDTH {
                        return $crate::value::Type::slot(&mut self.$field, index - first);
                    }
                    let first = first + <$type as $crate::value::Type>::WIDTH;
                    $(
                        const _: &str = stringify!($computed);
                        if index == first {
                            return None;
                        }
                        let first = first + 1;
                    )*
                )*
                let _ = first;
                None
            }

            fn is_whole(&self, seen: u64) -> bool {
                const { assert!(<$Name as $crate::value::Build>::WIDTH <= u64::BITS as usize) };
                let rest = seen;
                $(
                    if !$crate::value::Type::is_whole(&self.$field, rest) {
                        return false;
                    }
                    let rest = rest >> <$type as $crate::value::Type>::WIDTH;
                    $(
                        const _: &str = stringify!($computed);
                        let rest = rest >> 1;
                    )*
                )*
                let _ = rest;
                true
            }
        }

        impl $crate::value::Build for $Name {
            const DECLARED: &'static $crate::field::Declared = &$crate::field::Declared {
                name: stringify!($Name),
                proto: $proto,
                version: {
                    let version: &[u32] = &[$($version)?];
                    version.first().copied()
                },
                doc: &[$($about),*],
                fields: || {
                    static FIELDS: std::sync::LazyLock<Vec<$crate::field::Field>> = std::sync::LazyLock::new(|| {
                        use $crate::field::Field;
                        use $crate::value::Type;
                        let mut fields = Vec::new();
                        $(
                            let field = Field::new::<$type>($proto, stringify!($field), &[$($doc),*]).tag($tag);
                            <$type>::declare(field $(.$option($($argument)?))*, &mut fields);
                            $(
                                let field = Field::new::<$of>($proto, stringify!($computed), &[$say]);
                                <$of>::declare(field $(.$mark())*, &mut fields);
                            )*
                        )*
                        fields
                    });
                    &FIELDS
                },
            };

            const WIDTH: usize = 0 $(
                + <$type as $crate::value::Type>::WIDTH
                $(+ { const _: &str = stringify!($computed); 1 })*
            )*;
        }

        impl $crate::value::Blank for $Name {
            fn blank() -> Self {
                Self { $($field: <$type as $crate::value::Blank>::blank(),)* }
            }
        }
    };
}

/// Declares messages that nest in other messages: as an object in JSON, as a message in protobuf.
macro_rules! parts {
    ($($Name:ident)*) => { $(part! { $Name {} })* };
}

/// Declares messages whose fields become fields of the containing message.
macro_rules! inlined {
    ($($Name:ident)*) => {$(
        part! { $Name {
            const WIDTH: usize = <Self as $crate::value::Build>::WIDTH;

            fn declare(_: $crate::field::Field, fields: &mut Vec<$crate::field::Field>) {
                fields.extend_from_slice(<Self as $crate::value::Build>::DECLARED.fields());
            }

            fn put<'a>(&'a self, to: &mut $crate::value::Put<'_, 'a>) {
                $crate::value::Message::put_all(self, to);
            }

            fn slot(&mut self, index: usize) -> Option<&mut dyn $crate::value::Slot> {
                $crate::value::Message::slot(self, index)
            }

            fn is_whole(&self, seen: u64) -> bool {
                $crate::value::Message::is_whole(self, seen)
            }
        } }
    )*};
}

/// Implements `Type` for a message that is a field of another message.
macro_rules! part {
    ($Name:ident { $($more:tt)* }) => {
        impl $crate::value::Slot for $Name {
            fn set(&mut self, _: $crate::value::Datum<'_>) -> bool {
                false
            }

            fn part(&mut self) -> Option<&mut dyn $crate::value::Message> {
                *self = $crate::value::Blank::blank();
                Some(self)
            }
        }

        impl $crate::value::Type for $Name {
            const KIND: $crate::field::Kind = $crate::field::Kind::Part(<Self as $crate::value::Build>::DECLARED);

            fn datum(&self) -> $crate::value::Datum<'_> {
                $crate::value::Datum::Part(self)
            }

            $($more)*
        }
    };
}

/// Declares a closed set of words: an enum with the spelling of each variant on the wire, and
/// conversions in both directions.
macro_rules! words {
    (
        $(#[doc = $doc:literal])*
        $(#[derive($($derive:ident),*)])?
        $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash $(, $($derive),*)?)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All values, in declaration order.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns the spelling on the wire.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// Returns the value spelled `word` on the wire.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }
        }

        impl $crate::value::Blank for $name {
            fn blank() -> Self {
                Self::ALL[0]
            }
        }

        impl $crate::value::Slot for $name {
            fn set(&mut self, datum: $crate::value::Datum<'_>) -> bool {
                let $crate::value::Datum::Text(text) = datum else { return false };
                Self::from_word(&text).map(|word| *self = word).is_some()
            }
        }

        impl $crate::value::Type for $name {
            const KIND: $crate::field::Kind = $crate::field::Kind::Word(&$crate::field::Words {
                name: stringify!($name),
                doc: &[$($doc),*],
                all: &[$($word),*],
            });

            fn datum(&self) -> $crate::value::Datum<'_> {
                $crate::value::Datum::Text(self.as_str().into())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
