//! What stays in the file, and what goes.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

use thalweg_control::Rollout;

use super::*;

#[test]
fn what_is_no_tenant_under_these_settings_stays_and_what_was_forgotten_goes() {
    let directory = std::env::temp_dir().join(format!("thalweg-store-{}", std::process::id()));
    let mut store = Store::open(&directory.join("new/control.sqlite")).unwrap();
    let pop = |tenants: &[&str], forgotten: &[&str]| {
        let states = tenants.iter().map(|tenant| (tenant.to_string(), State::default()));
        let mut pop = Pop::of(states.collect(), Rollout::default());
        pop.unwritten.states = true;
        pop.unwritten.forgotten = forgotten.iter().map(ToString::to_string).collect();
        pop
    };
    let mut kept = |pop: &Pop| {
        store.keep("here", pop, 0).unwrap();
        store.pops().unwrap().remove(0).1.tenants.states().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(kept(&pop(&["a.example", "b.example"], &[])), ["a.example", "b.example"]);
    assert_eq!(kept(&pop(&["b.example", "c.example"], &[])), ["a.example", "b.example", "c.example"]);
    assert_eq!(kept(&pop(&["c.example"], &["b.example"])), ["a.example", "c.example"]);
    fs::remove_dir_all(directory).unwrap();
}
