//! Runs the target named by `PARSER` under libFuzzer: `make fuzz`.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<thalweg_fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("PARSER").expect("PARSER must be set");
    thalweg_fuzz::target(&name).expect("PARSER must name a target")
});

fuzz_target!(|input: &[u8]| (TARGET.run)(input));
