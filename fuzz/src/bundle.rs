//! Bundle target: decoding of documents, reported faults, and rule lookups.

use std::net::SocketAddr;

use thalweg_bundle::{Bundle, FAULTS_MAX, Place, declared_checksum, is_checksum};

/// Empty checksum in a document, to be replaced by the correct one.
const UNSEALED: &str = r#""checksum":"""#;

/// Decodes `input` as a bundle document.
pub(crate) fn run(input: &[u8]) {
    assert!(declared_checksum(input).is_none_or(|checksum| is_checksum(&checksum)));
    let document = sealed(input);
    let bundle = match Bundle::decode(&document) {
        Ok(bundle) => bundle,
        Err(faults) => {
            assert!((1..=FAULTS_MAX).contains(&faults.all().len()));
            let value: Option<serde_json::Value> = serde_json::from_slice(input).ok();
            for fault in faults.all() {
                // The checksum may be missing; every other reported value must exist in the
                // document.
                if let Place::Value(pointer) = &fault.place
                    && pointer != "/checksum"
                {
                    let found = value.as_ref().and_then(|value| value.pointer(pointer));
                    assert!(found.is_some(), "{fault}");
                }
            }
            return;
        }
    };
    assert_eq!(declared_checksum(&document).as_deref(), Some(bundle.checksum()));
    let again = Bundle::decode(bundle.encode().as_bytes());
    assert_eq!(again.as_ref(), Ok(&bundle));
    for rule in &bundle.content().rules {
        for address in [rule.prefix.first(), rule.prefix.last()] {
            // A tenant is named by the first of its hosts.
            let is_left_alone = bundle.content().hosts_left_alone.contains(&rule.tenant);
            assert_eq!(bundle.rule(address, &rule.tenant), (!is_left_alone).then_some(rule));
            for unix_s in [0, u64::MAX] {
                rule.holds_out(address, unix_s);
            }
            bundle.content().experiments.iter().for_each(|experiment| {
                assert!(experiment.arms.contains(experiment.arm(SocketAddr::new(address, 443))));
            });
        }
    }
}

/// Returns the document with its correct checksum, if decoding reports one.
fn sealed(input: &[u8]) -> Vec<u8> {
    let expected = Bundle::decode(input).err().and_then(|faults| {
        let of_checksum = |place: &Place| matches!(place, Place::Value(at) if at == "/checksum");
        let fault = faults.all().iter().find(|fault| of_checksum(&fault.place))?;
        fault.message.rsplit(' ').next().map(str::to_owned)
    });
    match (expected, std::str::from_utf8(input)) {
        (Some(checksum), Ok(text)) => {
            text.replacen(UNSEALED, &format!(r#""checksum":"{checksum}""#), 1).into()
        }
        _ => input.to_vec(),
    }
}
