//! Fuzz targets: for each parser of external input, properties that must hold for any bytes.
//!
//! A target is a function that takes bytes and panics if a property does not hold. Its corpus in
//! `corpus/<name>` has small inputs that reach every form known to the parser. To add a parser, add
//! a row to [`TARGETS`] and a corpus.
//!
//! - `cargo test -p thalweg-fuzz` replays the corpora and thousands of mutations of them, which are
//!   the same in every run.
//! - `make fuzz PARSER=ranges FOR_S=600` runs one target under libFuzzer, guided by coverage, with
//!   the stable compiler. Failing inputs are stored in `target/fuzz`; add them to the corpus
//!   together with the fix.
//!
//! Inputs for text formats are text: a value, followed by lines with the data to which it applies.
//! For formats with a checksum, inputs omit it, and the target adds the correct one.

mod batch;
mod bundle;
mod chunked;
mod conditions;
mod control;
mod dates;
mod directives;
mod disk;
mod heads;
mod movie;
mod policy;
mod ranges;
mod rollout;
mod routes;
mod sock_diag;
mod vary;

/// A parser under test.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of the target and its corpus.
    pub name: &'static str,
    /// Runs the target; panics if a property does not hold.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 20] = [
    Target { name: "batch", run: batch::run },
    Target { name: "bundle", run: bundle::run },
    Target { name: "chunked", run: chunked::run },
    Target { name: "conditions", run: conditions::run },
    Target { name: "content-range", run: ranges::content_range },
    Target { name: "control-rollout", run: rollout::run },
    Target { name: "control-state", run: control::run },
    Target { name: "dates", run: dates::run },
    Target { name: "directives", run: directives::run },
    Target { name: "disk-journal", run: disk::journal },
    Target { name: "disk-record", run: disk::record },
    Target { name: "movie", run: movie::run },
    Target { name: "policy", run: policy::run },
    Target { name: "ranges", run: ranges::run },
    Target { name: "request-head", run: heads::request },
    Target { name: "response-head", run: heads::response },
    Target { name: "routes", run: routes::run },
    Target { name: "sock-capture", run: sock_diag::capture },
    Target { name: "sock-filter", run: sock_diag::filter },
    Target { name: "vary", run: vary::run },
];

/// Returns the target called `name`.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// Splits `input` into `N` lines. Missing lines are empty, and the last line contains the rest of
/// the input.
fn lines<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut lines = input.splitn(N, |byte| *byte == b'\n');
    std::array::from_fn(|_| lines.next().unwrap_or_default())
}

/// Parses a line as a number; returns 0 if it is not a number.
fn number(line: &[u8]) -> u64 {
    match thalweg_http::number::parse(line) {
        Some(thalweg_http::number::Decimal::Value(value)) => value,
        Some(thalweg_http::number::Decimal::Overflow) => u64::MAX,
        None => 0,
    }
}

/// Parses lines of the form `name: value` as a field section, and skips all other lines.
fn fields(lines: &[u8]) -> thalweg_http::Fields {
    let mut fields = thalweg_http::Fields::new();
    for line in lines.split(|byte| *byte == b'\n') {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if let Ok(name) = str::from_utf8(name)
            && thalweg_http::token::is_token(name.as_bytes())
            && name.len() <= thalweg_http::fields::NAME_BYTES_MAX
        {
            fields.push(name, value);
        }
    }
    fields
}
