//! Store tests: which rows the database keeps and which it deletes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use thalweg_control::Rollout;

use super::*;

#[test]
fn removed_tenants_stay_in_the_file_and_expired_ones_are_deleted() {
    let directory = std::env::temp_dir().join(format!("thalweg-store-{}", std::process::id()));
    let mut store = Store::open(&directory.join("new/control.sqlite")).unwrap();
    let pop = |tenants: &[&str], forgotten: &[&str]| {
        let states = tenants.iter().map(|tenant| (tenant.to_string(), State::default()));
        let mut pop = Pop::of(states.collect(), Rollout::default());
        pop.unwritten.states = true;
        pop.unwritten.forgotten = forgotten.iter().map(ToString::to_string).collect();
        pop
    };
    let mut saved_tenants = |pop: &Pop| {
        store.save("here", pop, 0).unwrap();
        store.pops().unwrap().remove(0).1.tenants.states().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(saved_tenants(&pop(&["a.example", "b.example"], &[])), ["a.example", "b.example"]);
    assert_eq!(
        saved_tenants(&pop(&["b.example", "c.example"], &[])),
        ["a.example", "b.example", "c.example"]
    );
    assert_eq!(saved_tenants(&pop(&["c.example"], &["b.example"])), ["a.example", "c.example"]);
    fs::remove_dir_all(directory).unwrap();
}
