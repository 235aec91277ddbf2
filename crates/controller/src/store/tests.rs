//! Store tests: which rows the database keeps and which it deletes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use thalweg_control::Rollout;

use super::*;

#[test]
fn database_is_private_and_a_looser_one_is_tightened() {
    let directory = std::env::temp_dir().join(format!("thalweg-store-mode-{}", std::process::id()));
    let path = directory.join("control.sqlite");
    let modes = || {
        let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().metadata().unwrap());
        files.map(|metadata| metadata.permissions().mode() & 0o777).collect::<Vec<_>>()
    };
    for mode in [MODE, 0o644, 0o666, 0o640] {
        for file in fs::read_dir(&directory).into_iter().flatten() {
            fs::set_permissions(file.unwrap().path(), Permissions::from_mode(mode)).unwrap();
        }
        let mut store = Store::open(&path).unwrap();
        store.save("here", &Pop::default(), 0).unwrap();
        assert_eq!(modes(), [MODE; 4], "the database, its lock, its log and the log's index");
    }
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn removed_pop_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("thalweg-store-pop-{}", std::process::id()));
    let mut store = Store::open(&directory.join("control.sqlite")).unwrap();
    let mut pop = Pop::of([(String::new(), State::default())].into_iter().collect(), Rollout::default());
    pop.unwritten.states = true;
    pop.unwritten.transitions = vec![Transition::EdgeSilent { edge: "edge-1".into() }];
    store.save("gone", &pop, 0).unwrap();
    store.save("kept", &pop, 0).unwrap();
    store.remove_pop("gone").unwrap();
    let names: Vec<_> = store.pops().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["kept"]);
    assert_eq!((store.events("gone", 9).unwrap().len(), store.events("kept", 9).unwrap().len()), (0, 1));
    fs::remove_dir_all(directory).unwrap();
}

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
