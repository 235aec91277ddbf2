//! libFuzzer binary for `make fuzz`: runs the target named by `PARSER`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<thalweg_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("PARSER").expect("PARSER must be set");
    thalweg_fuzz::target(&name).expect("PARSER must name a target")
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
