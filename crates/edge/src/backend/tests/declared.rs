//! Declared backend tests: endpoints, connection limits, timeouts, preambles and name look-up.

use std::net::Ipv6Addr;

use expect_test::expect;
use socket2::{Domain, Socket, Type};
use tokio::net::UnixListener;

use super::*;
use crate::backend::idle::IDLE_TIME_MAX;

#[tokio::test]
async fn nonexistent_or_sick_backend_fails_immediately() {
    let backends = none_configured();
    let policy = load(&backends, "backend default none;").await;
    let pool = Pool::new(0, 8);
    let error = pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap_err();
    expect!["backend default (none) is sick"].assert_eq(&error.reason);
    assert!(!policy.is_healthy(0) && !policy.is_healthy(7));
    assert_eq!(backends.set_health("default", HealthOverride::Healthy), 1);
    assert!(!policy.is_healthy(0), "a backend declared as none stays sick");

    let (listener, address) = listener().await;
    let policy = load(&backends, &format!("backend a {{ .host = \"{address}\"; }}")).await;
    assert!(policy.is_healthy(0), "a backend without a probe is healthy");
    assert_eq!(backends.set_health("a", HealthOverride::Sick), 1);
    let error = pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap_err();
    assert_eq!(error.reason, format!("backend a ({address}) is sick"));
    assert_eq!(backends.set_health("a", HealthOverride::Auto), 1);
    pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap();
    drop(listener);
    let error = pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap_err();
    assert!(!error.timeout && !error.busy && error.reason.contains("refused"), "{error:?}");
}

#[tokio::test]
async fn ipv6_address_is_accepted_in_every_spelling() {
    let listener = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (pool, backends) = (Pool::new(0, 8), none_configured());
    for declared in [
        format!(".host = \"::1\"; .port = \"{port}\";"),
        format!(".host = \"[::1]\"; .port = \"{port}\";"),
        format!(".host = \"[::1]:{port}\";"),
        format!(".host = \"[0:0:0:0:0:0:0:1]:{port}\";"),
    ] {
        let policy = load(&backends, &format!("backend a {{ {declared} }}")).await;
        pool.take(&backends, &to(&policy), Wanted::Any).await.expect(&declared);
        accept(&listener).await;
    }
}

#[tokio::test]
async fn connection_limit_spans_all_workers() {
    let (_listener, address) = listener().await;
    let backends = none_configured();
    let text = format!("backend a {{ .host = \"{address}\"; .max_connections = 2; }}");
    let policy = load(&backends, &text).await;
    let pools = [Pool::new(0, 8), Pool::new(1, 8)];
    let route = to(&policy);
    let first = pools[0].take(&backends, &route, Wanted::Any).await.unwrap();
    let _second = pools[1].take(&backends, &route, Wanted::Any).await.unwrap();
    let error = pools[1].take(&backends, &route, Wanted::Any).await.unwrap_err();
    assert!(error.busy && error.reason.ends_with("has reached its connection limit"), "{error:?}");
    pools[0].put(first);
    let next = pools[1].take(&backends, &route, Wanted::Any).await.unwrap();
    assert!(!next.reused, "an idle connection belongs to one worker and holds no permit");
    drop(next);
    assert!(pools[0].take(&backends, &route, Wanted::Any).await.unwrap().reused);
}

#[tokio::test]
async fn timeouts_come_from_fetch_then_backend_then_config() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let text = format!(
        "backend a {{ .host = \"{address}\"; .connect_timeout = 1s; .first_byte_timeout = 30ms; .between_bytes_timeout = 1m; }}"
    );
    let policy = load(&backends, &text).await;
    let pool = Pool::new(0, 8);
    let own = Route { between_bytes: Some(Duration::from_millis(40)), ..to(&policy) };
    let times = pool.take(&backends, &own, Wanted::Any).await.unwrap().timeouts;
    expect![[r#"
        FetchTimeouts {
            connect: 1s,
            first_byte: 30ms,
            between_bytes: 40ms,
        }
    "#]]
    .assert_debug_eq(&times);
    drop(accept(&listener).await);

    let connection = pool.take(&backends, &own, Wanted::New).await.unwrap();
    let mut silent = accept(&listener).await;
    let error = start(connection).await.unwrap_err();
    assert!(error.timeout && error.reason.contains("too long to respond"), "{error:?}");
    head(&mut silent).await;

    let connection = pool.take(&backends, &own, Wanted::New).await.unwrap();
    let mut stalled = accept(&listener).await;
    stalled.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome").await.unwrap();
    let mut exchange = start(connection).await.unwrap();
    assert_eq!(exchange.next().await.unwrap().unwrap(), "some");
    let error = exchange.next().await.unwrap_err();
    assert!(error.timeout && error.reason.contains("stopped sending"), "{error:?}");
}

/// The listener's backlog of one connection is full, so the kernel does not respond.
#[tokio::test]
async fn connecting_times_out() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let _queued = TcpStream::connect(address).await.unwrap();
    let backends = none_configured();
    let text = format!("backend a {{ .host = \"{address}\"; .connect_timeout = 30ms; }}");
    let policy = load(&backends, &text).await;
    let error = Pool::new(0, 8).take(&backends, &to(&policy), Wanted::Any).await.unwrap_err();
    assert!(error.timeout && error.reason.ends_with("timed out"), "{error:?}");
}

#[tokio::test]
async fn unix_socket_works_like_tcp() {
    let path = std::env::temp_dir().join(format!("thalweg-backend-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let backends = none_configured();
    let policy = load(&backends, &format!("backend a {{ .path = \"{}\"; }}", path.display())).await;
    let (pool, route) = (Pool::new(0, 8), to(&policy));
    assert_eq!(route.host(""), "0.0.0.0");
    pool.put(pool.take(&backends, &route, Wanted::Any).await.unwrap());
    let (mut backend, _) = listener.accept().await.unwrap();
    for _ in 0..2 {
        let connection = pool.take(&backends, &route, Wanted::Any).await.unwrap();
        backend.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nover").await.unwrap();
        assert!(connection.reused);
        let mut exchange = start(connection).await.unwrap();
        assert!(head(&mut backend).await.starts_with("GET / "));
        assert_eq!(exchange.next().await.unwrap().unwrap(), "over");
        assert!(exchange.next().await.unwrap().is_none());
        pool.put(exchange.finish().unwrap());
    }
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn request_without_host_gets_the_backends_host() {
    let backends = none_configured();
    let policy =
        load(&backends, "backend a { .host = \"127.0.0.1:9\"; .host_header = \"a.example\"; }").await;
    assert_eq!((to(&policy).host(""), to(&policy).host("b.example")), ("a.example", "b.example"));
    let policy = load(&backends, "backend a { .host = \"127.0.0.1:9\"; }").await;
    assert_eq!((to(&policy).host(""), Route::default().host("")), ("127.0.0.1", ""));
}

#[tokio::test]
async fn preamble_and_proxy_header_come_first_and_bind_connection_to_client() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let ends = |client: &str, server: &str| {
        Some(Ends { client: client.parse().unwrap(), server: server.parse().unwrap() })
    };
    let v4 = ends("[::ffff:192.0.2.1]:5000", "[::ffff:198.51.100.2]:80");
    let v6 = ends("[2001:db8::1]:5000", "[2001:db8::2]:80");
    let signature = b"\r\n\r\n\0\r\nQUIT\n".as_slice();
    let of_v4 = [signature, b"\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\x13\x88\0\x50"].concat();
    let cases: [(&str, Option<Ends>, &[u8]); 6] = [
        (".proxy_header = 1;", v4, b"PROXY TCP4 192.0.2.1 198.51.100.2 5000 80\r\n"),
        (".proxy_header = 1;", v6, b"PROXY TCP6 2001:db8::1 2001:db8::2 5000 80\r\n"),
        (".proxy_header = 1;", None, b"PROXY UNKNOWN\r\n"),
        (".proxy_header = 2;", v4, &of_v4),
        (".proxy_header = 2;", None, &[signature, b"\x20\0\0\0"].concat()),
        (".preamble = :aGk=:; .proxy_header = 1;", None, b"hiPROXY UNKNOWN\r\n"),
    ];
    for (option, ends, expected) in cases {
        let policy = load(&backends, &format!("backend a {{ .host = \"{address}\"; {option} }}")).await;
        let (pool, route) = (Pool::new(0, 8), Route { ends, ..to(&policy) });
        let connection = pool.take(&backends, &route, Wanted::Any).await.unwrap();
        let mut backend = accept(&listener).await;
        backend.write_all(EMPTY).await.unwrap();
        let exchange = start(connection).await.unwrap();
        let mut came = vec![0; expected.len() + HEAD.len()];
        backend.read_exact(&mut came).await.unwrap();
        assert_eq!(came, [expected, HEAD].concat(), "{option} {ends:?}");
        pool.put(exchange.finish().unwrap());
        assert!(is_closed(&mut backend).await, "{option}: no other client may use the connection");
    }
    let policy =
        load(&backends, &format!("backend a {{ .host = \"{address}\"; .preamble = :aGk=:; }}")).await;
    let pool = Pool::new(0, 8);
    pool.put(pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap());
    assert!(pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap().reused);
}

#[tokio::test]
async fn idle_connections_close_after_last_request_of_last_policy() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let text = format!("backend a {{ .host = \"{address}\"; }}");
    let (policy, reloaded) = (load(&backends, &text).await, load(&backends, &text).await);
    let pool = Pool::new(0, 8);
    let idle = pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap();
    let mut of_idle = accept(&listener).await;
    let used = pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap();
    let mut of_used = accept(&listener).await;
    pool.put(idle);
    drop(policy);
    assert!(
        pool.take(&backends, &to(&reloaded), Wanted::Any).await.unwrap().reused,
        "the policies share the backend"
    );
    assert!(is_closed(&mut of_idle).await, "a connection dropped without `put` must close");
    drop(reloaded);
    assert_eq!(backends.states().len(), 1, "a request still holds the backend");
    pool.put(used);
    assert!(is_closed(&mut of_used).await);
    assert_eq!(backends.states().len(), 0);
}

#[tokio::test]
async fn unused_connections_close_without_other_traffic() {
    let (listener, address) = listener().await;
    let backends = none_configured();
    let policy = load(&backends, &format!("backend a {{ .host = \"{address}\"; }}")).await;
    let pool = Pool::new(1, 8);
    pool.put(pool.take(&backends, &to(&policy), Wanted::Any).await.unwrap());
    let mut idle = accept(&listener).await;
    tokio::time::pause();
    let closing = async { match backends.close_old().await {} };
    let mut byte = [0];
    tokio::select! {
        read = timeout(3 * IDLE_TIME_MAX, idle.read(&mut byte)) => {
            assert_eq!(read.expect("the connection closes in time").unwrap(), 0);
        }
        () = closing => {}
    }
}

#[tokio::test]
async fn unresolvable_names_are_reported_at_policy_load() {
    let backends = none_configured();
    let program = program("backend a { .host = \"127.0.0.1\"; } backend b { .host = \"localhost\"; }");
    PolicyBackends::load(&backends, program.backends(), program.probes()).await.unwrap();
    let mut rows = program.backends().to_vec();
    rows[1].address =
        Some(thalweg_policy::program::BackendAddress::Host { host: "no such name".into(), port: 80 });
    let error = PolicyBackends::load(&backends, &rows, program.probes()).await.unwrap_err();
    expect!["backend b: no such name: failed to lookup address information: Name or service not known"]
        .assert_eq(&error.to_string());
}

/// Simulates a changed address of `localhost`: nothing listens at the old address.
#[tokio::test]
async fn name_is_resolved_again_after_failed_connection() {
    let (_listener, address) = listener().await;
    let backends = none_configured();
    let text = format!("backend a {{ .host = \"localhost\"; .port = \"{}\"; }}", address.port());
    let policy = load(&backends, &text).await;
    let endpoint = &policy.get(0).unwrap().endpoint;
    *endpoint.addresses.lock().unwrap() = [(Ipv4Addr::new(127, 0, 0, 77), address.port()).into()].into();
    let pool = Pool::new(0, 8);
    pool.take(&backends, &to(&policy), Wanted::New).await.unwrap_err();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while pool.take(&backends, &to(&policy), Wanted::New).await.is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the name was not resolved again");
        tokio::task::yield_now().await;
    }
}
