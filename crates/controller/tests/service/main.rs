//! Tests of the complete service over HTTP, with its database: replies while the database cannot be
//! written, files that prevent a start, and the interface for agents and edges; [`identities`],
//! [`certificates`] and [`hostile`] clients; [error rates](error_rate) of the verdicts.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../surface/tests/tls/authority.rs"]
mod authority;
mod certificates;
mod error_rate;
mod hostile;
mod identities;
mod running;
mod world;

use std::thread;
use std::time::{Duration, Instant};

use running::{PATIENCE, Place, RECORDS, now, request, request_as, until};
use thalweg_controller::ROUNDS_KEPT;

/// Bundle request for a PoP without stored state.
const NOWHERE: &str = "/bundle?pop=nowhere&edge=edge-1";
const HERE: &str = "/bundle?pop=here&edge=edge-1";

#[test]
fn unwritable_changes_are_not_published_until_stored() {
    let place = Place::new();
    let mut service = place.start();
    service.post_record();
    until("a window is decided", || service.rounds().len() == 1);
    assert_eq!(service.get(HERE, "").status, 200);
    let known = service.get("/scopes", "").content;

    let outside = place.database();
    outside.execute_batch("BEGIN IMMEDIATE").unwrap();
    // Agents still get replies, and a window is decided.
    service.post_record();
    until("an edge gets no bundle", || service.get(HERE, "").status == 503);
    until("storing is retried", || service.metric("failures_total") >= 2);
    assert_eq!(service.get(HERE, "").status, 503);
    assert_eq!(service.get("/bundle?pop=here", "").status, 503, "including an edge without a name");
    assert_eq!(service.get(NOWHERE, "").status, 204, "other PoPs are not affected");
    assert_ne!(service.get("/edges?pop=here", "").status, 200);
    assert_eq!((service.rounds().len(), service.get("/scopes", "").content), (1, known.clone()));

    outside.execute_batch("COMMIT").unwrap();
    until("an edge gets its bundle", || service.get(HERE, "").status == 200);
    assert_eq!(service.rounds().len(), 2);
    assert_ne!(service.get("/scopes", "").content, known);
    // A restart must not change anything that was published.
    let (rounds, bundle) = (service.rounds(), service.get(HERE, ""));
    service.end();
    let service = place.start();
    assert_eq!(service.rounds(), rounds);
    let again = service.get(HERE, "");
    assert_eq!((again.etag, again.content), (bundle.etag, bundle.content));
    service.end();
}

#[test]
fn second_controller_cannot_use_the_same_file() {
    let place = Place::new();
    let service = place.start();
    assert_eq!(place.start_error(), "another controller is using this file: configure a separate file");
    service.end();
    assert!(place.bind().is_ok());
}

#[test]
fn unreadable_file_prevents_the_start_and_is_not_changed() {
    let place = Place::new();
    std::fs::write(place.file(), "rubbish ".repeat(1000)).unwrap();
    assert_eq!(place.start_error(), "file is not a database");
    assert_eq!(std::fs::read_to_string(place.file()).unwrap(), "rubbish ".repeat(1000));

    let place = Place::new();
    place.database().execute_batch("CREATE TABLE others (it)").unwrap();
    assert_eq!(place.start_error(), "not a controller database: configure another file");

    let place = Place::new();
    let mut service = place.start();
    service.post_record();
    until("a window is decided", || service.rounds().len() == 1);
    service.end();
    let version: u32 = place.database().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    for (other, what) in [(version - 1, "configure another file"), (version + 1, "use a newer release")] {
        place.database().pragma_update(None, "user_version", other).unwrap();
        let why = format!("its schema version is {other}, but this program reads version {version}: {what}");
        assert_eq!(place.start_error(), why);
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
        let why = place.start_error();
        assert!(why.starts_with(what), "{why}");
        set(&whole).unwrap();
        assert!(place.bind().is_ok());
    }
}

#[test]
fn rounds_and_changes_are_kept_for_four_weeks() {
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
    let mut service = place.start();
    service.post_record();
    until("a window is decided", || service.metric("rounds_total") == 1);
    until("the round is published", || service.rounds().last().is_some_and(|round| round["window"].is_u64()));
    service.end();
    let of = |table: &str, pop: &str| {
        let query = format!("SELECT count(*), min(unix_s) FROM {table} WHERE pop = ?1");
        database.query_row(&query, [pop], |row| Ok((row.get::<_, u64>(0)?, row.get::<_, u64>(1)?))).unwrap()
    };
    assert_eq!(of("rounds", "here"), (ROUNDS_KEPT, oldest + 1));
    assert_eq!(of("changes", "here"), (ROUNDS_KEPT - 1, oldest + 1), "the new round has no changes");
    assert_eq!(of("rounds", "there"), (1, oldest), "each PoP has its own limit");
}

#[test]
fn bundle_request_blocks_until_next_bundle() {
    let place = Place::new();
    let mut service = place.start();
    let wait = |wait_s: u64| format!("Prefer: respond-async, wait={wait_s}\r\n");
    assert_eq!(service.get(HERE, "").status, 204);
    let begun = Instant::now();
    assert_eq!(service.get(HERE, &wait(1)).status, 204);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());

    let (address, polls) = (service.address, service.metric("polls_total"));
    let (begun, fields) = (Instant::now(), wait(60));
    let first = thread::spawn(move || request(address, &format!("GET {HERE}"), &fields, &[]));
    until("the request is waiting", || service.metric("polls_total") > polls);
    service.post_record();
    let first = first.join().unwrap();
    assert_eq!(first.status, 200);
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());

    let known = format!("If-None-Match: {}\r\n", first.etag);
    assert_eq!(service.get(HERE, &known).status, 304);
    let begun = Instant::now();
    assert_eq!(service.get(HERE, &(known.clone() + &wait(1))).status, 304);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(
        service.get(HERE, "If-None-Match: \"sha256:0\"\r\n").status,
        200,
        "the edge has another bundle"
    );
    let edges = service.get("/edges?pop=here", "").json();
    assert_eq!(edges["edges"][0]["name"], "edge-1", "{edges}");
    // A client that does not state how long it would wait is not recorded as an edge.
    assert_eq!(service.get("/bundle?pop=here&edge=edge-2", "").status, 200);
    assert_eq!(service.get("/edges?pop=here", "").json()["edges"].as_array().unwrap().len(), 1);
    service.end();
}

#[test]
fn invalid_and_foreign_requests_are_rejected() {
    let place = Place::new();
    let mut service = place.start();
    let content = service.post_record();
    let post = |fields: &str, content: &[u8]| request(service.address, "POST /records", fields, content);
    let again = post(RECORDS, &content);
    assert_eq!((again.status, again.json()["position"].as_u64()), (200, Some(1)));
    assert_eq!((service.metric("records_total"), service.metric("records_repeated_total")), (1, 1));
    let position = |host: &str| {
        service.get(&format!("/position?pop=here&host={host}&epoch=1"), "").json()["position"].as_u64()
    };
    assert_eq!((position("edge-1"), position("edge-2")), (Some(1), None));

    let origin = "Origin: http://a.example\r\n";
    let of_page = format!("{RECORDS}{origin}");
    for (fields, status) in [("", 415), ("Content-Type: text/plain\r\n", 415), (&of_page, 403)] {
        let refused = post(fields, &content);
        assert_eq!(refused.status, status, "{fields:?}");
        assert!(refused.json()["error"].is_string());
    }
    assert_eq!(post(RECORDS, b"rubbish").status, 400);
    // A page whose host name resolves to this address is recognised only by its `Host` field.
    let rebound = request_as("evil.example", service.address, "GET /scopes", "", &[]);
    assert_eq!(rebound.status, 421);
    assert!(rebound.json()["error"].as_str().unwrap().contains("evil.example"));
    assert_eq!(
        (service.get("/healthz", "").content, service.get("/readyz", "").content),
        ("ok\n".into(), "ready\n".into())
    );
    assert_eq!(service.get(HERE, origin).status, 403);
    assert_eq!(service.get("/bundle?pop=a%2Fb", "").status, 400);
    for target in ["/rounds?pop=nowhere", "/edges?pop=nowhere", "/prefixes?pop=nowhere"] {
        assert_eq!(service.get(target, "").status, 404, "{target}");
    }
    assert_eq!(service.metric("records_total"), 1);
    service.end();
}
