//! Selection tests: parameters, and the tracks that they select.

use super::*;
use crate::presentation::NamedTrack;
use crate::presentation::tests::{audio, channel, ladder, track, video};
use expect_test::{Expect, expect};

fn parse(query: &str) -> Result<Selection, BadParameter> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    Selection::from_parameters(pairs)
}

/// Two heights of H.264, one of HEVC, three audio tracks and two languages of subtitles.
fn film() -> OnDemand {
    let text = |name: &str, tag: &str| -> NamedTrack {
        let mut text = track(name, "wvtt", Media::Text, 1000, &[2000, 2000]);
        text.index.info.language = Some(tag.to_owned());
        text
    };
    let hevc = Media::Video { width: 1920, height: 1080 };
    let mut surround = audio("surround", Some("de-AT"), &[96_000, 96_000]);
    surround.index.info.codec = String::from("ec-3");
    OnDemand::new(vec![
        video("v360", 360, &[25_600, 25_600]),
        video("v720", 720, &[25_600, 25_600]),
        track("hevc", "hvc1.1.6.L120.90", hevc, 12_800, &[25_600, 25_600]),
        audio("en", Some("en"), &[96_000, 96_000]),
        surround,
        audio("plain", None, &[96_000, 96_000]),
        text("text_en", "en"),
        text("text_fr", "fr"),
    ])
    .unwrap()
}

fn check(queries: &[&str], expected: Expect) {
    let film = film();
    let mut out = String::new();
    for query in queries {
        let names =
            |film: OnDemand| film.tracks().iter().map(|t| t.name.clone()).collect::<Vec<_>>().join(" ");
        let line = match parse(query).map(|selection| film.select(&selection)) {
            Ok(Ok(selected)) => names(selected),
            Ok(Err(nothing)) => format!("404 {nothing}"),
            Err(bad) => format!("400 {bad}"),
        };
        let _ = writeln!(out, "{query} → {line}");
    }
    expected.assert_eq(&out);
}

#[test]
fn parameters_select_tracks() {
    check(
        &["max_height=720", "min_height=720", "max_height=720&min_height=400", "lang=de", "lang=EN,und"],
        expect![[r#"
            max_height=720 → v360 v720 en surround plain text_en text_fr
            min_height=720 → v720 hevc en surround plain text_en text_fr
            max_height=720&min_height=400 → v720 en surround plain text_en text_fr
            lang=de → v360 v720 hevc surround
            lang=EN,und → v360 v720 hevc en plain text_en
        "#]],
    );
    check(
        &["codec=avc1", "codec=hvc1,mp4a.40.2", "codec=ec-3&codec=avc1", "CMCD=bl%3D1&token=x", ""],
        expect![[r#"
            codec=avc1 → v360 v720 en surround plain text_en text_fr
            codec=hvc1,mp4a.40.2 → hevc en plain text_en text_fr
            codec=ec-3&codec=avc1 → v360 v720 surround text_en text_fr
            CMCD=bl%3D1&token=x → v360 v720 hevc en surround plain text_en text_fr
             → v360 v720 hevc en surround plain text_en text_fr
        "#]],
    );
}

#[test]
fn selection_without_video_or_audio_names_what_exists() {
    check(
        &["max_height=240", "lang=ja", "codec=av01", "max_bitrate=7999"],
        expect![[r#"
            max_height=240 → 404 ?max_height=240 selects no video: there is v360 (360 lines, 8000 bit/s, avc1.64001f), v720 (720 lines, 8000 bit/s, avc1.64001f), hevc (1080 lines, 8000 bit/s, hvc1.1.6.L120.90)
            lang=ja → 404 ?lang=ja selects no audio: there is en (en, 8000 bit/s, mp4a.40.2), surround (de-AT, 8000 bit/s, ec-3), plain (und, 8000 bit/s, mp4a.40.2)
            codec=av01 → 404 ?codec=av01 selects no video: there is v360 (360 lines, 8000 bit/s, avc1.64001f), v720 (720 lines, 8000 bit/s, avc1.64001f), hevc (1080 lines, 8000 bit/s, hvc1.1.6.L120.90)
            max_bitrate=7999 → 404 ?max_bitrate=7999 selects no video: there is v360 (360 lines, 8000 bit/s, avc1.64001f), v720 (720 lines, 8000 bit/s, avc1.64001f), hevc (1080 lines, 8000 bit/s, hvc1.1.6.L120.90)
        "#]],
    );
}

#[test]
fn malformed_values_state_the_expected_form() {
    check(
        &[
            "max_height=",
            "max_height=720p",
            "max_bitrate=-1",
            "max_bitrate=99999999999999999999",
            "max_height=1&max_height=2",
            "min_height=9&max_height=8",
            "lang=",
            "lang=de,",
            "lang=d%65",
            "codec=h264",
        ],
        expect![[r#"
            max_height= → 400 max_height=: expected a whole number of lines, as in 720
            max_height=720p → 400 max_height=720p: expected a whole number of lines, as in 720
            max_bitrate=-1 → 400 max_bitrate=-1: expected a whole number of bits per second, as in 2000000
            max_bitrate=99999999999999999999 → 400 max_bitrate=99999999999999999999: expected a whole number of bits per second, as in 2000000
            max_height=1&max_height=2 → 400 max_height=2: max_height is also 1; give it once
            min_height=9&max_height=8 → 400 min_height=9 exceeds max_height=8
            lang= → 400 lang=: expected language tags (BCP 47) separated by commas, as in de,pt-BR
            lang=de, → 400 lang=de,: expected language tags (BCP 47) separated by commas, as in de,pt-BR
            lang=d%65 → 400 lang=d%65: expected language tags (BCP 47) separated by commas, as in de,pt-BR
            codec=h264 → 400 codec=h264: expected codecs (RFC 6381) separated by commas, which begin with one of avc1 avc3 hvc1 hev1 dvh1 dvhe dva1 dvav av01 vp08 vp09 mp4a ac-3 ec-3 ac-4 opus flac wvtt stpp mp4v
        "#]],
    );
    let many: Vec<String> =
        (0..=VALUES_MAX).map(|i| format!("a{}", "abcdefghijklmnopq".get(i..=i).unwrap())).collect();
    assert_eq!(
        parse(&format!("lang={}", many.join(","))).unwrap_err().to_string(),
        "lang: more than 16 values"
    );
}

proptest::proptest! {
    #[test]
    fn parsing_never_panics(key in 0..5_usize, value in "[a-z0-9é,.-]{0,12}") {
        let key = ["max_height", "min_height", "max_bitrate", "lang", "codec"][key];
        if let Ok(selection) = Selection::from_parameters([(key, value.as_str())]) {
            let _ = film().select(&selection);
            proptest::prop_assert_eq!(parse(&selection.to_string()), Ok(selection));
        }
    }
}

#[test]
fn equal_selections_have_one_canonical_form() {
    let canonical = "codec=avc1,mp4a&lang=de,en&max_bitrate=900000&max_height=720&min_height=100";
    let given = "min_height=100&lang=EN&max_height=0720&codec=mp4a,AVC1&lang=de&x=1&max_bitrate=900000";
    assert_eq!(parse(given).unwrap().to_string(), canonical);
    assert_eq!(parse(canonical).unwrap(), parse(given).unwrap());
    assert!(parse("x=1").unwrap().is_everything());
}

#[test]
fn timeline_and_urls_do_not_depend_on_the_selection() {
    let full = OnDemand::new(ladder()).unwrap();
    let low = full.select(&parse("max_height=180").unwrap()).unwrap();
    assert_eq!(low.start_in(48_000), full.start_in(48_000));
    let (full, low) = (crate::dash::on_demand(&full), crate::dash::on_demand(&low));
    let lines = |mpd: &str| mpd.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    assert!(lines(&low).is_subset(&lines(&full)), "{low}");
    assert!(!low.contains("video_360") && low.contains("video_180"), "{low}");
}

#[test]
fn live_selection_restricts_every_epoch() {
    let full = channel();
    let (epochs, heights) = (full.epochs.len(), parse("max_height=100000").unwrap());
    assert_eq!(full.clone().select(&heights).unwrap().epochs.len(), epochs);
    let nothing = full.select(&parse("max_height=1").unwrap()).unwrap_err();
    assert!(nothing.to_string().starts_with("?max_height=1 selects no video: there is "), "{nothing}");
}
