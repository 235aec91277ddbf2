//! Named paths built into the lab. Each path's file cites the sources of its figures.

/// A named path.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// Name of the path and of its file, without the extension.
    pub name: &'static str,
    /// Content of the file, in the format of one path in a scenario.
    pub text: &'static str,
}

macro_rules! names {
    ($($name:literal)*) => {
        &[$(Named { name: $name, text: include_str!(concat!("../../paths/", $name, ".toml")) },)*]
    };
}

/// Returns all named paths, from best to worst.
pub fn library() -> &'static [Named] {
    names!["fibre" "cable" "dsl" "lte" "wifi" "satellite" "long-haul"]
}

/// Returns the path called `name`, or `None` if it is unknown.
pub fn named(name: &str) -> Option<Named> {
    library().iter().copied().find(|path| path.name == name)
}

impl Named {
    /// Returns a short description: the first line of the file.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}
