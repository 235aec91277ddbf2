//! The whole service over HTTP, with its file: what it answers while that cannot be written, which files it begins with, and what
//! agents and edges are told.
#![allow(clippy::unwrap_used, reason = "a test fails where something is not as it has to be")]

mod running;

use std::thread;
use std::time::{Duration, Instant};

use running::{PATIENCE, Place, RECORDS, ask, now, until};
use thalweg_controller::ROUNDS_KEPT;

/// A PoP of which nothing is known.
const NOWHERE: &str = "/bundle?pop=nowhere&edge=edge-1";
const HERE: &str = "/bundle?pop=here&edge=edge-1";

#[test]
fn what_cannot_be_written_is_told_to_nobody_until_it_is() {
    let place = Place::new();
    let mut service = place.begin();
    service.bring();
    until("a window is decided", || service.rounds().len() == 1);
    assert_eq!(service.get(HERE, "").status, 200);
    let known = service.get("/scopes", "").content;

    let outside = place.database();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Agents are heard, and a window is decided.
    service.bring();
    until("an edge gets nothing", || service.get(HERE, "").status == 503);
    until("it is tried again", || service.figure("failures_total") >= 2);
    assert_eq!(service.get(HERE, "").status, 503);
    assert_eq!(service.get("/bundle?pop=here", "").status, 503, "also who has no name");
    assert_eq!(service.get(NOWHERE, "").status, 204, "of another PoP nothing is held back");
    assert_ne!(service.get("/edges?pop=here", "").status, 200);
    assert_eq!((service.rounds().len(), service.get("/scopes", "").content), (1, known.clone()));

    outside.execute_batch("COMMIT").unwrap();
    until("an edge gets its bundle", || service.get(HERE, "").status == 200);
    assert_eq!(service.rounds().len(), 2);
    assert_ne!(service.get("/scopes", "").content, known);
    // What everybody was told is there after a start.
    let (told, bundle) = (service.rounds(), service.get(HERE, ""));
    service.end();
    let service = place.begin();
    assert_eq!(service.rounds(), told);
    let again = service.get(HERE, "");
    assert_eq!((again.etag, again.content), (bundle.etag, bundle.content));
    service.end();
}

#[test]
fn a_file_is_for_one_controller() {
    let place = Place::new();
    let service = place.begin();
    assert_eq!(place.refused(), "another controller has it: give this one a file of its own");
    service.end();
    assert!(place.bind().is_ok());
}

#[test]
fn a_file_that_cannot_be_read_ends_the_start_and_is_left_as_it_is() {
    let place = Place::new();
    std::fs::write(place.file(), "rubbish ".repeat(1000)).unwrap();
    assert_eq!(place.refused(), "file is not a database");
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), "rubbish ".repeat(1000));

    let place = Place::new();
    place.database().execute_batch("CREATE TABLE others (it)").unwrap();
    assert_eq!(place.refused(), "it is no file of a controller: give another one");

    let place = Place::new();
    let mut service = place.begin();
    service.bring();
    until("a window is decided", || service.rounds().len() == 1);
    service.end();
    let version: u32 = place.database().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    for (other, what) in [(version - 1, "give another file"), (version + 1, "use a newer release")] {
        place.database().pragma_update(None, "user_version", other).unwrap();
        let why = format!("its version is {other}, and this program reads {version}: {what}");
        assert_eq!(place.refused(), why);
    }
    place.database().pragma_update(None, "user_version", version).unwrap();
    assert!(place.bind().is_ok());
    for (table, column, what) in [
        ("states", "state", "the state of PoP \"here\", \"\": "),
        ("pops", "rollout", "the rollout of PoP \"here\": "),
    ] {
        let database = place.database();
        let whole: Vec<u8> =
            database.query_row(&format!("SELECT {column} FROM {table}"), [], |row| row.get(0)).unwrap();
        let set = |value: &[u8]| database.execute(&format!("UPDATE {table} SET {column} = ?1"), [value]);
        set(&whole[..whole.len() / 2]).unwrap();
        let why = place.refused();
        assert!(why.starts_with(what), "{why}");
        set(&whole).unwrap();
        assert!(place.bind().is_ok());
    }
}

#[test]
fn rounds_and_changes_are_kept_for_four_weeks_of_windows() {
    let place = Place::new();
    drop(place.bind().unwrap());
    let oldest = now().as_secs() - 2 * ROUNDS_KEPT;
    let database = place.database();
    database
        .execute_batch(&format!(
            "WITH RECURSIVE ages (it) AS (SELECT 0 UNION ALL SELECT it + 1 FROM ages WHERE it + 1 < {ROUNDS_KEPT}) \
             INSERT INTO rounds SELECT 'here', '', {oldest} + it, '{{}}' FROM ages; \
             INSERT INTO changes SELECT pop, tenant, '192.0.2.0/24', 1, unix_s, 'left', 'gone' FROM rounds; \
             INSERT INTO rounds VALUES ('there', '', {oldest}, '{{}}');"
        ))
        .unwrap();
    let mut service = place.begin();
    service.bring();
    until("a window is decided", || service.figure("rounds_total") == 1);
    until("it is told", || service.rounds().last().is_some_and(|round| round["window"].is_u64()));
    service.end();
    let of = |table: &str, pop: &str| {
        let query = format!("SELECT count(*), min(unix_s) FROM {table} WHERE pop = ?1");
        database.query_row(&query, [pop], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?))).unwrap()
    };
    assert_eq!(of("rounds", "here"), (ROUNDS_KEPT, oldest + 1));
    assert_eq!(of("changes", "here"), (ROUNDS_KEPT - 1, oldest + 1), "none is of the new round");
    assert_eq!(of("rounds", "there"), (1, oldest), "each PoP has its own");
}

#[test]
fn who_asks_for_a_bundle_is_held_until_there_is_another() {
    let place = Place::new();
    let mut service = place.begin();
    let wait = |wait_s: u64| format!("Prefer: respond-async, wait={wait_s}\r\n");
    assert_eq!(service.get(HERE, "").status, 204);
    let begun = Instant::now();
    assert_eq!(service.get(HERE, &wait(1)).status, 204);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());

    let (address, polls) = (service.address, service.figure("polls_total"));
    let (begun, fields) = (Instant::now(), wait(60));
    let first = thread::spawn(move || ask(address, &format!("GET {HERE}"), &fields, &[]));
    until("it is held", || service.figure("polls_total") > polls);
    service.bring();
    let first = first.join().unwrap();
    assert_eq!(first.status, 200);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());

    let known = format!("If-None-Match: {}\r\n", first.etag);
    assert_eq!(service.get(HERE, &known).status, 304);
    let begun = Instant::now();
    assert_eq!(service.get(HERE, &(known.clone() + &wait(1))).status, 304);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(service.get(HERE, "If-None-Match: \"sha256:0\"\r\n").status, 200, "it has another");
    let edges = service.get("/edges?pop=here", "").told();
    assert_eq!(edges["edges"][0]["name"], "edge-1", "{edges}");
    // Who does not say how long it would wait is no edge.
    assert_eq!(service.get("/bundle?pop=here&edge=edge-2", "").status, 200);
    assert_eq!(service.get("/edges?pop=here", "").told()["edges"].as_array().unwrap().len(), 1);
    service.end();
}

#[test]
fn agents_and_web_pages_are_told_what_is_not_taken() {
    let place = Place::new();
    let mut service = place.begin();
    let content = service.bring();
    let post = |fields: &str, content: &[u8]| ask(service.address, "POST /records", fields, content);
    let again = post(RECORDS, &content);
    assert_eq!((again.status, again.told()["position"].as_u64()), (200, Some(1)));
    assert_eq!((service.figure("records_total"), service.figure("records_repeated_total")), (1, 1));
    let position =
        |host: &str| service.get(&format!("/position?host={host}&epoch=1"), "").told()["position"].as_u64();
    assert_eq!((position("edge-1"), position("edge-2")), (Some(1), None));

    let origin = "Origin: http://a.example\r\n";
    for fields in ["", "Content-Type: text/plain\r\n", &format!("{RECORDS}{origin}")] {
        let refused = post(fields, &content);
        assert_eq!(refused.status, 415, "{fields:?}");
        assert!(refused.told()["error"].is_string());
    }
    assert_eq!(post(RECORDS, b"rubbish").status, 400);
    assert_eq!(service.get(HERE, origin).status, 403);
    assert_eq!(service.get("/bundle?pop=a%2Fb", "").status, 400);
    for target in ["/rounds?pop=nowhere", "/edges?pop=nowhere", "/prefixes?pop=nowhere"] {
        assert_eq!(service.get(target, "").status, 404, "{target}");
    }
    assert_eq!(service.figure("records_total"), 1);
    service.end();
}
