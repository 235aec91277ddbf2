//! Policy target: any text must compile to a program or a report.

use thalweg_policy::{File, Known, compile};

/// Maximum number of included files. With the crate's own limit, each input of the smoke test would
/// compile hundreds of files.
const INCLUDES_MAX: usize = 20;

/// Compiles `input` as a policy in which every include has the same text.
pub(crate) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input).into_owned();
    let file = |name: &str| File { name: name.to_owned(), text: text.clone() };
    let mut includes = 0;
    let mut loader = |name: &str, _: &str| {
        includes += 1;
        if includes > INCLUDES_MAX { Err("enough".to_owned()) } else { Ok(file(name)) }
    };
    let compiled = compile(file("main.vcl"), &mut loader, &Known::default());
    match compiled {
        Ok((_, report)) => assert!(!report.has_errors()),
        Err(report) => {
            assert!(report.has_errors());
            // Every fault must be displayable, whatever its position.
            assert!(!report.to_string().is_empty());
        }
    }
}
