//! The named paths that come with the lab, each with where its figures are from.

/// A path of the library.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Its name, which is its file's.
    pub name: &'static str,
    /// The file, in the form of one path of a scenario.
    pub text: &'static str,
}

macro_rules! names {
    ($($name:literal)*) => {
        &[$(Named { name: $name, text: include_str!(concat!("../../paths/", $name, ".toml")) },)*]
    };
}

/// All of them, from the best to the worst.
pub fn library() -> &'static [Named] {
    names!["fibre" "cable" "dsl" "lte" "wifi" "satellite" "long-haul"]
}

/// The one of that name.
pub fn named(name: &str) -> Option<Named> {
    library().iter().copied().find(|path| path.name == name)
}

impl Named {
    /// What it stands for: the first line of its file.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}
