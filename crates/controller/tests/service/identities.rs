//! Tests of identities: what each token allows, and changes of the file.

use std::time::{Duration, Instant};

use crate::running::{Place, RECORDS, Response, batch, batch_of, request, socket, until};

const EDGE_KEYS: &str = "role = 'edge'\npop = 'here'\nname = 'edge-1'";
const AGENT_KEYS: &str = "role = 'agent'\npop = 'here'\nname = 'edge-1'";
const OPERATOR_KEYS: &str = "role = 'operator'\nname = 'anna'";
const BUNDLE: &str = "/bundle?pop=here&edge=edge-1";
const PREFER: &str = "Prefer: wait=0\r\n";

#[test]
fn each_role_reaches_only_its_own_endpoints() {
    let place = Place::new();
    let tokens = [EDGE_KEYS, AGENT_KEYS, OPERATOR_KEYS].map(|keys| place.add_identity(keys));
    let service = place.start();
    let wrong = "Authorization: Bearer wrong\r\n".to_owned();
    let none = String::new();
    let [edge, agent, operator] = &tokens;
    for (target, role) in [
        (BUNDLE, edge),
        ("/position?pop=here&host=edge-1&epoch=1", agent),
        ("/scopes", operator),
        ("/rounds?pop=here", operator),
        ("/prefixes?pop=here", operator),
        ("/explain?pop=here&prefix=192.0.2.0", operator),
        ("/edges?pop=here", operator),
        ("/metrics", operator),
    ] {
        for token in [edge, agent, operator, &wrong, &none] {
            let reply = service.get(target, token);
            let is_refused = matches!(reply.status, 401 | 403);
            assert_eq!(is_refused, token != role, "{target} {token}: {}", reply.status);
            let is_known = tokens.contains(token);
            assert_eq!(reply.status == 401, !is_known, "{target} {token}");
            let challenge = "www-authenticate: Bearer realm=\"thalweg controller\"";
            assert_eq!(reply.head.contains(challenge), !is_known, "{}", reply.head);
        }
    }
    for (target, status) in [("/healthz", 200), ("/readyz", 200), ("/nothing", 404)] {
        assert_eq!(service.get(target, "").status, status, "{target}");
    }
    let post = |token: &str| {
        request(service.address, "POST /records", &format!("{RECORDS}{token}"), &batch(0)).status
    };
    assert_eq!([edge, agent, operator, &wrong, &none].map(|token| post(token)), [403, 200, 403, 401, 401]);
    assert_eq!(service.metric_as("records_total", operator), 1);
    service.end();
}

#[test]
fn edge_polls_only_as_itself() {
    let place = Place::new();
    let (one, other) = (place.add_identity(EDGE_KEYS), "role = 'edge'\npop = 'there'\nname = 'edge-1'");
    let (other, operator) = (place.add_identity(other), place.add_identity(OPERATOR_KEYS));
    let service = place.start();
    let poll = |target: &str, token: &str| service.get(target, &format!("{token}{PREFER}")).status;
    assert_eq!((poll(BUNDLE, &one), poll("/bundle?pop=there&edge=edge-1", &other)), (204, 204));
    for target in [
        "/bundle?pop=there&edge=edge-1",
        "/bundle?pop=here&edge=edge-2",
        "/bundle?pop=here",
        "/bundle?edge=edge-1",
        "/bundle",
    ] {
        assert_eq!(poll(target, &one), 403, "{target}");
    }
    assert_eq!(service.metric_as("forbidden_total", &operator), 5);
    service.end();
}

#[test]
fn records_of_foreign_edges_are_dropped_and_change_no_position() {
    let place = Place::new();
    let keys = "role = 'agent'\npop = 'here'\nname = 'a'\nedges = ['edge-2', 'edge-3']";
    let (agent, other) = (place.add_identity(AGENT_KEYS), place.add_identity(keys));
    let operator = place.add_identity(OPERATOR_KEYS);
    let service = place.start();
    let post = |token: &str, content: &[u8]| -> Response {
        request(service.address, "POST /records", &format!("{RECORDS}{token}"), content)
    };
    assert_eq!(post(&agent, &batch(0)).json()["position"], 1);
    for (pop, host) in [("here", "edge-1"), ("there", "edge-2"), ("", "edge-3"), ("here", "a")] {
        let reply = post(
            &other,
            &batch_of(pop, host, u64::MAX - 2, vec![socket("192.0.2.7:1"), socket("192.0.2.7:2")]),
        );
        assert_eq!((reply.status, &reply.json()["dropped"]), (200, &2.into()), "{pop} {host}");
        let reason = "2 of a host or PoP that is not the agent's";
        assert_eq!(reply.json()["reason"], reason);
        assert_eq!(reply.json()["position"].as_u64(), Some(u64::MAX), "the agent continues");
    }
    for host in ["edge-2", "edge-3"] {
        let reply = post(&other, &batch_of("here", host, 0, vec![socket("192.0.2.7:1")]));
        assert!(reply.json()["dropped"].is_null(), "{}", reply.content);
    }
    // The first agent continues where it was.
    let position = "/position?pop=here&host=edge-1&epoch=1";
    assert_eq!(service.get(position, &agent).json()["position"], 1);
    assert_eq!(service.get(position, &other).status, 403);
    assert_eq!(post(&agent, &batch(1)).json()["position"], 2);
    let metric = |name: &str| service.metric_as(name, &operator);
    assert_eq!((metric("records_total"), metric("records_foreign_total")), (4, 8));
    assert_eq!(metric("records_repeated_total"), 0);
    service.end();
}

#[test]
fn changed_file_takes_effect_and_a_faulty_one_does_not() {
    let place = Place::new();
    let first = place.add_identity(EDGE_KEYS);
    let service = place.start();
    let poll = |token: &str| service.get(BUNDLE, token).status;
    assert_eq!(poll(&first), 204);
    // Two tokens of the same edge are valid at the same time.
    let second = place.add_identity(EDGE_KEYS);
    until("the second token is valid", || poll(&second) == 204);
    assert_eq!(poll(&first), 204);
    let path = place.identities().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{text}[[identity]]\nrole = 'root'\n")).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2_500) {
        assert_eq!((poll(&first), poll(&second)), (204, 204));
        std::thread::sleep(Duration::from_millis(100));
    }
    let (_, last) = text.rsplit_once("[[identity]]").unwrap();
    std::fs::write(&path, format!("[[identity]]{last}")).unwrap();
    until("the first token is revoked", || poll(&first) == 401);
    assert_eq!(poll(&second), 204);
    service.end();
}

#[test]
fn controller_without_identities_listens_on_loopback_only() {
    let place = Place::new();
    let why = "0.0.0.0:0 is reachable from other machines, so anyone could steer: set identities, or use a loopback address";
    assert_eq!(place.bind_at("0.0.0.0:0").unwrap_err(), why);
    place.add_identity(EDGE_KEYS);
    assert!(place.bind_at("0.0.0.0:0").is_ok());
    std::fs::write(place.identities().unwrap(), "[[identity]]\nrole = 'edge'\n").unwrap();
    let fault = place.bind().unwrap_err();
    assert!(fault.ends_with("identities.toml:1:1: missing: name"), "{fault}");
}
