//! Configured backend tests: rotation, connection limit and idle time.

use expect_test::expect;

use super::*;
use crate::backend::idle::IDLE_TIME_MAX;

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
async fn backend_failing_before_head_is_avoided_until_it_responds() {
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
            assert_eq!(
                get(&pool, &backends, None).await.backend_id(),
                other,
                "the failed backend is avoided"
            );
        }
        drop(kept);

        let connection = get(&pool, &backends, Some(other)).await;
        let (mut stream, _) = first.accept().await.unwrap();
        stream.write_all(EMPTY).await.unwrap();
        start(connection).await.unwrap();
        let turns = [get(&pool, &backends, None).await, get(&pool, &backends, None).await];
        assert!(turns.iter().any(|connection| connection.backend_id() == failing));
        // One of the two connections was made to this backend.
        first.accept().await.unwrap();
    }
}

#[tokio::test]
async fn failed_backend_is_retried_only_without_alternative() {
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
            reason: "too many backend connections in use",
        }
    "#]]
    .assert_debug_eq(&error);
    let (next, ()) =
        tokio::join!(pool.take(&backends, &hurried, Wanted::Any), async { pool.put(connection) });
    assert!(next.unwrap().reused, "the waiting request gets the returned connection");
    drop(backend);
    pool.take(&backends, &hurried, Wanted::Any).await.unwrap_err();
    assert_eq!(pool.permits.available_permits(), 1, "a failed attempt releases its permit");
}

#[tokio::test]
async fn connections_close_after_idle_limit() {
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
