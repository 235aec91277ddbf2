//! Selection of tracks by the query of a manifest's URL.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::path::PathBuf;
use std::time::Duration;

use hyper::StatusCode;
use support::{CMAF, Running, ffmpeg, ffprobe, make_media};
use thalweg_origin::Config;

fn start(media: PathBuf) -> Running {
    Running::start(Config { media: vec![media.into()], listing_max_age: Duration::ZERO, ..Config::default() })
}

/// Presentation `a` with two sizes of video, and audio in two languages and without one.
fn film() -> PathBuf {
    let media = make_media(5.0);
    for language in ["deu", "eng"] {
        let metadata = format!("-metadata:s:a:0 language={language}");
        let input =
            format!("-f lavfi -i sine=440:sample_rate=48000 -t 5 -c:a aac -b:a 64k {metadata} {CMAF}");
        ffmpeg(&input, media.join(format!("a/{language}.mp4")));
    }
    media
}

/// Returns the URIs that a manifest names, sorted, without those of I-frame playlists.
fn uris(manifest: &str) -> Vec<String> {
    let quoted = manifest.split("URI=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let bases = manifest.split("<BaseURL>").skip(1).filter_map(|rest| rest.split('<').next());
    let lines = manifest.lines().filter(|line| !line.starts_with(['#', '<', ' ']));
    let mut uris: Vec<String> = quoted.chain(bases).chain(lines).map(str::to_owned).collect();
    uris.retain(|uri| !uri.ends_with("/iframes.m3u8"));
    uris.sort();
    uris.dedup();
    uris
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_list_only_the_selected_tracks() {
    let origin = start(film());
    let hls = async |query: &str| uris(&origin.text(&format!("/vod/a/master.m3u8{query}")).await);
    let dash = async |query: &str| {
        let mpd = origin.text(&format!("/vod/a/manifest.mpd{query}")).await;
        let mpd = dash_mpd_core::parse(&mpd).unwrap();
        let sets = mpd.periods[0].adaptations.iter();
        let mut ids: Vec<String> =
            sets.flat_map(|set| &set.representations).filter_map(|r| r.id.clone()).collect();
        ids.sort();
        ids
    };
    for (query, tracks) in [
        ("", &["audio", "deu", "eng", "video_180", "video_90"][..]),
        ("?CMCD=br%3D100&token=max_height", &["audio", "deu", "eng", "video_180", "video_90"]),
        ("?max_height=90", &["audio", "deu", "eng", "video_90"]),
        ("?min_height=91&lang=de", &["deu", "video_180"]),
        ("?lang=en,und", &["audio", "eng", "video_180", "video_90"]),
        ("?codec=avc1,mp4a.40.2", &["audio", "deu", "eng", "video_180", "video_90"]),
    ] {
        assert_eq!(dash(query).await, tracks, "{query}");
        let playlists: Vec<String> = tracks.iter().map(|track| format!("{track}/media.m3u8")).collect();
        assert_eq!(hls(query).await, playlists, "{query}");
    }
    // A player receives exactly the selected streams.
    let url = origin.url("/vod/a/master.m3u8?max_height=90&lang=de");
    let streams = ffprobe("-show_entries stream=codec_name,height -of csv=p=0", &url).await;
    let mut streams: Vec<&str> = streams.split_whitespace().map(|s| s.trim_end_matches(',')).collect();
    streams.sort_unstable();
    streams.dedup();
    assert_eq!(streams, ["aac", "h264,90"]);
    origin.stop().await;
}

/// A cache must store each playlist, header and segment once, whatever the selection.
#[tokio::test]
async fn urls_in_manifests_do_not_depend_on_the_selection() {
    let origin = start(film());
    for manifest in ["master.m3u8", "manifest.mpd"] {
        let all = uris(&origin.text(&format!("/vod/a/{manifest}")).await);
        let some = uris(&origin.text(&format!("/vod/a/{manifest}?max_height=90&lang=de")).await);
        assert!(some.len() < all.len(), "{some:?}");
        assert!(some.iter().all(|uri| all.contains(uri) && !uri.contains('?')), "{some:?}");
    }
    // The query has no effect below the manifests, not even a malformed one.
    let (plain, queried) = ("/vod/a/video_90/media.m3u8", "/vod/a/video_90/media.m3u8?max_height=x");
    assert_eq!(origin.text(plain).await, origin.text(queried).await);
    origin.stop().await;
}

#[tokio::test]
async fn each_selection_has_its_own_entity_tag() {
    let origin = start(film());
    for manifest in ["master.m3u8", "manifest.mpd"] {
        let etag = async |query: &str| {
            let answer = origin.get(&format!("/vod/a/{manifest}{query}")).await;
            assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
            answer.field("etag").to_owned()
        };
        let (all, low) = (etag("").await, etag("?max_height=90&lang=de").await);
        assert_ne!(all, low);
        assert_eq!(low, etag("?lang=DE&x=1&max_height=090").await, "the order does not matter");
        let path = format!("/vod/a/{manifest}?max_height=90&lang=de");
        let status = async |tag: &str| origin.request("GET", &path, &[("if-none-match", tag)]).await.status;
        assert_eq!((status(&low).await, status(&all).await), (StatusCode::NOT_MODIFIED, StatusCode::OK));
    }
    origin.stop().await;
}

#[tokio::test]
async fn unusable_selections_are_refused_with_a_reason() {
    let origin = start(film());
    for manifest in ["master.m3u8", "manifest.mpd"] {
        let refused = async |query: &str| {
            let answer = origin.get(&format!("/vod/a/{manifest}{query}")).await;
            assert_eq!(answer.field("cache-control"), "no-store");
            (answer.status.as_u16(), answer.text())
        };
        let (status, text) = refused("?max_height=720p").await;
        assert_eq!(
            (status, &text[..]),
            (400, "max_height=720p: expected a whole number of lines, as in 720")
        );
        let (status, text) = refused("?max_height=10").await;
        assert_eq!(status, 404);
        assert!(
            text.starts_with("?max_height=10 selects no video: there is video_180 (180 lines, "),
            "{text}"
        );
        let (status, text) = refused("?lang=ja").await;
        assert_eq!(status, 404);
        assert!(text.contains("audio (und, ") && text.contains("deu (de, "), "{text}");
    }
    origin.stop().await;
}

#[tokio::test]
async fn live_manifests_list_only_the_selected_tracks() {
    let media = film();
    let origin = start(media.clone());
    for (name, file) in [("low", "video_90.mp4"), ("high", "video_180.mp4"), ("sound", "deu.mp4")] {
        let content = std::fs::read(media.join("a").join(file)).unwrap();
        let answer = origin.put(&format!("/ingest/c/Streams({name}.cmfv)"), content).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    }
    let mpd = origin.text("/live/c/manifest.mpd?max_height=90").await;
    assert!(
        mpd.contains("id=\"low\"") && mpd.contains("id=\"sound\"") && !mpd.contains("id=\"high\""),
        "{mpd}"
    );
    let playlists = uris(&origin.text("/live/c/master.m3u8?min_height=91").await);
    assert_eq!(playlists, ["high/media.m3u8", "sound/media.m3u8"]);
    for manifest in ["master.m3u8", "manifest.mpd"] {
        let answer = origin.get(&format!("/live/c/{manifest}?max_height=1")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND);
        assert!(answer.text().starts_with("?max_height=1 selects no video: there is "), "{}", answer.text());
        let answer = origin.get(&format!("/live/c/{manifest}?max_height=")).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    }
    origin.stop().await;
}
