//! Probe tests as seen by the backend, and tests of the resulting health.

use std::sync::Arc;

use super::*;

/// Responds to one probe completely. Returns the probe's request.
async fn answer(listener: &TcpListener, status: &str) -> String {
    let mut stream = accept(listener).await;
    let request = head(&mut stream).await;
    stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await.unwrap();
    request
}

fn policy(address: SocketAddr, probe: &str) -> String {
    format!("backend a {{ .host = \"{address}\"; .probe = {{ .interval = 1ms; {probe} }} }}")
}

/// Returns the number of good probes, and whether the backend is healthy.
fn state(backends: &Backends) -> (u32, bool) {
    let states = backends.states();
    (states[0].good.unwrap().good, states[0].is_healthy)
}

/// Only one probe is in flight at a time, so a new probe implies that the previous result is
/// recorded.
#[tokio::test]
async fn backend_is_healthy_while_enough_recent_probes_are_good() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let policy = load(&backends, &policy(address, ".url = \"/up\"; .window = 4; .threshold = 2;")).await;
    let created_s = policy.changed_s(0);
    assert_eq!(state(&backends), (1, false), "one good probe is not enough");
    let request = answer(&listener, "200 OK").await;
    assert_eq!(request, "GET /up HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    // Each step is the state expected when a probe arrives, then the response to that probe.
    let steps = [
        ((2, true), "200 OK"),
        ((3, true), "503 No"),
        ((3, true), "503 No"),
        ((2, true), "204 No Content"),
        ((1, false), "200 OK"),
        ((1, false), "200 OK"),
        ((2, true), "503 No"),
    ];
    let (mut was_healthy, mut since_s) = (false, created_s);
    for ((good, is_healthy), next) in steps {
        let mut stream = accept(&listener).await;
        assert_eq!(state(&backends), (good, is_healthy));
        assert_eq!(policy.is_healthy(0), is_healthy);
        if is_healthy == was_healthy {
            assert_eq!(policy.changed_s(0), since_s);
        }
        assert!(policy.changed_s(0) >= since_s);
        (was_healthy, since_s) = (is_healthy, policy.changed_s(0));
        head(&mut stream).await;
        stream.write_all(format!("HTTP/1.1 {next}\r\n\r\n").as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn unexpected_late_or_unfinished_responses_fail_the_probe() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let probe = ".request = \"HEAD /x HTTP/1.0\" \"X-Probe: yes\"; .expected_response = 418; .timeout = 50ms; \
                 .window = 1; .threshold = 1; .initial = 1;";
    let policy = load(&backends, &policy(address, probe)).await;
    assert!(policy.is_healthy(0), "the probe starts the backend as healthy");
    let mut kept = Vec::new();
    for (sent, ends, is_good) in [
        ("", true, false),
        ("HTTP/1.1 418 Teapot\r\n\r\n", true, true),
        ("", false, false),
        ("HTTP/1.0 418\r\nA: b\r\n\r\nsome", true, true),
        (&format!("HTTP/1.1 418 Teapot\r\n\r\n{}", "x".repeat(200)), false, false),
        ("HTTP/1.1 418 Teapot\r\n\r\n", true, true),
        ("SSH-2.0-418 x 418 \r\n", true, false),
    ] {
        let mut stream = accept(&listener).await;
        assert_eq!(head(&mut stream).await, "HEAD /x HTTP/1.0\r\nX-Probe: yes\r\n\r\n");
        stream.write_all(sent.as_bytes()).await.unwrap();
        if ends {
            drop(stream);
        } else {
            kept.push(stream);
        }
        // The next probe is sent only after the result of this one is recorded.
        let next = accept(&listener).await;
        assert_eq!(policy.is_healthy(0), is_good, "{sent:?}");
        drop(next);
    }
    drop(listener);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    assert_eq!(backends.set_health("a", HealthOverride::Healthy), 1);
    assert!(policy.is_healthy(0), "the operator set the backend to healthy");
    backends.set_health("a", HealthOverride::Auto);
    while policy.is_healthy(0) {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn operator_overrides_probe() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let policy = load(&backends, &policy(address, ".window = 1; .threshold = 1; .initial = 1;")).await;
    backends.set_health("a", HealthOverride::Sick);
    answer(&listener, "200 OK").await;
    let waiting = accept(&listener).await;
    assert_eq!(state(&backends), (1, false), "the operator overrides the probe");
    backends.set_health("a", HealthOverride::Auto);
    assert_eq!(state(&backends), (1, true));
    drop(waiting);
    assert_eq!(backends.set_health("b", HealthOverride::Sick), 0);
    drop(policy);
}

#[tokio::test]
async fn health_survives_reload_and_ends_with_last_policy() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let text = policy(address, ".window = 2; .threshold = 2;");
    let first = load(&backends, &text).await;
    answer(&listener, "200 OK").await;
    let mut probing = accept(&listener).await;
    assert!(first.is_healthy(0));
    let second = load(&backends, &format!("{text} acl unrelated {{ \"192.0.2.1\"; }}")).await;
    assert!(Arc::ptr_eq(first.get(0).unwrap(), second.get(0).unwrap()) && second.is_healthy(0));
    drop(first);
    let named = load(&backends, &text.replace("backend a", "backend b")).await;
    let other = load(&backends, &text.replace(".window = 2", ".window = 3")).await;
    assert!(
        !named.is_healthy(0) && !other.is_healthy(0),
        "a different name or probe declares another backend"
    );
    drop((named, other));
    assert_eq!(backends.states().iter().filter(|state| state.is_healthy).count(), 1);

    drop(second);
    // The probe in flight holds the backend, so its state is dropped when the probe ends.
    head(&mut probing).await;
    drop(probing);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !backends.states().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", backends.states());
        // Probes of dropped backends may still arrive.
        tokio::select! { accepted = listener.accept() => drop(accepted), () = tokio::task::yield_now() => {} }
    }
    assert!(!load(&backends, &text).await.is_healthy(0), "the earlier state was dropped");
}
