//! The configured backends: how they take turns, how many connections there may be.

use expect_test::expect;

use super::*;
use crate::backend::pool::IDLE_TIME_MAX;

async fn listeners<const N: usize>() -> ([TcpListener; N], Backends) {
    let mut listeners = Vec::new();
    for _ in 0..N {
        listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
    }
    let urls: Vec<_> = listeners.iter().map(|it| BackendUrl::at(it.local_addr().unwrap())).collect();
    (listeners.try_into().unwrap(), Backends::new(&urls, &Timeouts::default(), 1))
}

async fn get(pool: &Pool, backends: &Backends, failed: Option<BackendId>) -> Connection {
    let wanted = failed.map_or(Wanted::Any, Wanted::NewElsewhere);
    pool.take(backends, &Route::default(), wanted).await.unwrap()
}

#[tokio::test]
async fn who_fails_before_a_head_is_passed_over_until_it_has_answered() {
    let ([first, _second], backends) = listeners::<2>().await;
    let pool = Pool::new(0, 8);
    let (failing, other) = (BackendId(0), BackendId(1));
    let impatient = Route { first_byte: Some(Duration::from_millis(50)), ..Route::default() };
    for silent in [false, true] {
        let connection = pool.take(&backends, &impatient, Wanted::NewElsewhere(other)).await.unwrap();
        assert_eq!(connection.backend_id(), failing);
        let (stream, _) = first.accept().await.unwrap();
        let kept = silent.then_some(stream);
        let error = start(connection).await.unwrap_err();
        assert_eq!((error.timeout, error.before_response), (silent, !silent));
        for _ in 0..4 {
            assert_eq!(get(&pool, &backends, None).await.backend_id(), other, "whose turn it ever is");
        }
        drop(kept);

        let connection = get(&pool, &backends, Some(other)).await;
        let (mut stream, _) = first.accept().await.unwrap();
        stream.write_all(EMPTY).await.unwrap();
        start(connection).await.unwrap();
        let turns = [get(&pool, &backends, None).await, get(&pool, &backends, None).await];
        assert!(turns.iter().any(|connection| connection.backend_id() == failing));
        // One of the two turns was its own.
        first.accept().await.unwrap();
    }
}

#[tokio::test]
async fn who_failed_is_asked_again_only_if_there_is_no_other() {
    let ([first, second], backends) = listeners::<2>().await;
    let pool = Pool::new(0, 8);
    let failed = get(&pool, &backends, None).await.backend_id();
    for _ in 0..4 {
        assert_ne!(get(&pool, &backends, Some(failed)).await.backend_id(), failed);
    }
    drop(if failed == BackendId(0) { second } else { first });
    assert_eq!(get(&pool, &backends, Some(failed)).await.backend_id(), failed);
}

#[tokio::test]
async fn connections_in_use_are_limited() {
    let ([backend], backends) = listeners::<1>().await;
    let pool = Pool::new(0, 1);
    let hurried = Route { connect: Some(Duration::from_millis(50)), ..Route::default() };
    let connection = get(&pool, &backends, None).await;
    let error = pool.take(&backends, &hurried, Wanted::Any).await.unwrap_err();
    expect![[r#"
        ConnectError {
            timeout: false,
            busy: true,
            reason: "all connections to backends are in use",
        }
    "#]]
    .assert_debug_eq(&error);
    let (next, ()) =
        tokio::join!(pool.take(&backends, &hurried, Wanted::Any), async { pool.put(connection) });
    assert!(next.unwrap().reused, "who waits has it next");
    drop(backend);
    pool.take(&backends, &hurried, Wanted::Any).await.unwrap_err();
    assert_eq!(pool.permits.available_permits(), 1, "what failed is not in use");
}

#[tokio::test]
async fn what_is_idle_for_too_long_is_closed() {
    let ([backend], backends) = listeners::<1>().await;
    let pool = Pool::new(0, 8);
    let (old, new) = (get(&pool, &backends, None).await, get(&pool, &backends, None).await);
    let (mut of_old, _) = backend.accept().await.unwrap();
    let (of_new, _) = backend.accept().await.unwrap();
    tokio::time::pause();
    pool.put(old);
    tokio::time::advance(IDLE_TIME_MAX).await;
    pool.put(new);
    tokio::time::resume();
    assert_eq!(of_old.read(&mut [0]).await.unwrap(), 0);
    assert_eq!(backends.list[0].idle.of(0).len(), 1);
    drop(of_new);
}
