//! Polling tests: request fields after different replies, and pauses between requests.

use expect_test::{Expect, expect};
use thalweg_bundle::{Bundle, Content};

use super::*;
use crate::config::Config;

fn bundle(number: u64) -> Bundle {
    Bundle::new(Content { number, ..Content::default() }).unwrap()
}

fn answer(document: &str, etag: Option<&str>) -> Result<Reply, String> {
    Ok(Reply::Document { content: document.into(), etag: etag.map(str::to_owned) })
}

/// An edge that polls a server. In expected output, `SUM` and the bundle number replace a checksum.
struct Poller {
    bundles: Arc<Bundles>,
    known: PollState,
}

impl Poller {
    fn new() -> Self {
        let bundle = Some("http://127.0.0.1:9/bundle".parse().unwrap());
        let bundles = Bundles::new(&Config { bundle, ..Config::default() }, None);
        Self { bundles: Arc::new(bundles), known: PollState::default() }
    }

    /// Handles a reply, and checks the fields of the next request.
    async fn check(&mut self, answer: Result<Reply, String>, is_good: bool, expect: Expect) {
        assert_eq!(self.known.handle_reply(&self.bundles, answer).await, is_good);
        let fields = self.known.fields(self.bundles.checksum().as_deref());
        let text: String = fields.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        let named = |text: String, number| text.replace(bundle(number).checksum(), &format!("SUM{number}"));
        expect.assert_eq(&(1..10).fold(text, named));
    }
}

#[tokio::test]
async fn requests_report_active_and_refused_bundles() {
    let mut it = Poller::new();
    let tag = |number| format!("\"{}\"", bundle(number).checksum());
    it.check(
        Ok(Reply::Nothing),
        true,
        expect![[r#"
        prefer: wait=30
    "#]],
    )
    .await;
    // No bundle is active, so the refused bundle must not be listed first.
    it.check(
        answer("{", Some("\"a\"")),
        false,
        expect![[r#"
        prefer: wait=30
        if-none-match: "", "a"
        thalweg-refused: 1:1:%20EOF%20while%20parsing%20an%20object
    "#]],
    )
    .await;
    it.check(
        answer(&bundle(7).encode(), Some(&tag(7))),
        true,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM7"
    "#]],
    )
    .await;
    it.check(
        Ok(Reply::Unchanged),
        true,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM7"
    "#]],
    )
    .await;
    // The checksum does not match the content, with and without an entity tag. Then the content is
    // not even JSON.
    let bad = bundle(8).encode().replace(":8,", ":18,");
    for etag in [Some(tag(8)), None] {
        it.check(answer(&bad, etag.as_deref()), false, expect![[r#"
            prefer: wait=30
            if-none-match: "SUM7", "SUM8"
            thalweg-refused: SUM8 /checksum:%20does%20not%20match%20the%20content,%20expected%20sha256:abfceb0e071ed4b6185f536a22d3c4215d20a4b04948733d6f5c256a672cdd5e
        "#]]).await;
    }
    it.check(
        answer("%", Some(&tag(8))),
        false,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM7", "SUM8"
        thalweg-refused: SUM8 1:1:%20expected%20value
    "#]],
    )
    .await;
    // The refusal is reported until a good bundle arrives.
    for (answer, is_good) in [(Ok(Reply::Unchanged), true), (Err("away".into()), false)] {
        it.check(
            answer,
            is_good,
            expect![[r#"
            prefer: wait=30
            if-none-match: "SUM7", "SUM8"
            thalweg-refused: SUM8 1:1:%20expected%20value
        "#]],
        )
        .await;
    }
    it.check(
        Ok(Reply::TooLong { etag: Some("W/\"9\"".into()) }),
        false,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM7", W/"9"
        thalweg-refused: longer%20than%208388608%20bytes
    "#]],
    )
    .await;
    it.check(
        Ok(Reply::TooLong { etag: None }),
        false,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM7"
        thalweg-refused: longer%20than%208388608%20bytes
    "#]],
    )
    .await;
    // The server's entity tag is sent back while its bundle is active.
    it.check(
        answer(&bundle(6).encode(), Some("W/\"6\"")),
        true,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM6", W/"6"
    "#]],
    )
    .await;
    it.check(
        answer(&bundle(5).encode(), None),
        true,
        expect![[r#"
        prefer: wait=30
        if-none-match: "SUM5"
    "#]],
    )
    .await;
}

#[tokio::test]
async fn server_that_resends_active_bundle_changes_nothing() {
    let mut it = Poller::new();
    assert!(it.known.handle_reply(&it.bundles, answer(&bundle(7).encode(), None)).await);
    let taken = it.bundles.active.load_full().unwrap();
    assert!(it.known.handle_reply(&it.bundles, answer(&bundle(7).encode(), Some("\"x\""))).await);
    assert!(Arc::ptr_eq(&taken, &it.bundles.active.load_full().unwrap()));
}

#[tokio::test]
async fn server_failures_are_reported_in_status() {
    let mut it = Poller::new();
    for reason in ["away", "still away"] {
        it.known.handle_reply(&it.bundles, Err(reason.into())).await;
        assert_eq!(it.bundles.status_json()["unheard"]["reason"], reason);
    }
    let status = it.bundles.status_json();
    assert!(status["heard_unix_ms"].is_null() && status["unheard"]["since_unix_ms"].is_u64());
    it.known.handle_reply(&it.bundles, Ok(Reply::Unchanged)).await;
    let status = it.bundles.status_json();
    assert!(status["heard_unix_ms"].is_u64() && status["unheard"].is_null());
}

#[test]
fn pauses_grow_and_vary() {
    let ms = |failures, took_ms, random| pause(failures, Duration::from_millis(took_ms), random).as_millis();
    // A server that holds requests is polled again immediately. Other servers are polled once per
    // second.
    assert_eq!([ms(0, 0, 1.0), ms(0, 300, 1.0), ms(0, 1000, 1.0), ms(0, 29_000, 1.0)], [1000, 700, 0, 0]);
    let least: Vec<_> = (1..8).map(|failures| ms(failures, 5000, 0.0)).collect();
    assert_eq!(least, [1000, 2000, 4000, 8000, 15_000, 15_000, 15_000]);
    let most: Vec<_> = (1..8).map(|failures| ms(failures, 5000, 1.0)).collect();
    assert_eq!(most, [2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    assert_eq!(ms(u32::MAX, 0, 1.0), PAUSE_MAX.as_millis());
    let drawn: Vec<f64> = (0..100).map(|_| fraction()).collect();
    assert!(drawn.iter().all(|drawn| (0.0..=1.0).contains(drawn)));
    assert!(drawn.iter().any(|drawn| *drawn < 0.4) && drawn.iter().any(|drawn| *drawn > 0.6));
}

#[test]
fn refusal_is_one_short_line() {
    let refused = |reason: &str, checksum| RefusedBundle { reason: reason.into(), checksum, at_ms: 0 };
    assert_eq!(refusal(&refused("a%b\r\nSet-Cookie: é\"", None)), "a%25b%0D%0ASet-Cookie:%20%C3%A9\"");
    let checksum = bundle(1).checksum().to_owned();
    for fill in ["a", "é", "\n", "€"] {
        let line = refusal(&refused(&fill.repeat(4000), Some(checksum.clone())));
        assert!(line.starts_with(&format!("{checksum} ")));
        assert!(line.len() <= REFUSED_BYTES_MAX && line.len() > REFUSED_BYTES_MAX - 9, "{}", line.len());
        let reason = thalweg_http::target::decode(&line[checksum.len() + 1..]).unwrap();
        assert!(String::from_utf8(reason).unwrap().chars().all(|char| fill.starts_with(char)));
    }
}
