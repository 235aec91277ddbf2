//! CMAF header tests: codec strings of ffmpeg's encoders, and other track properties from moov.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use expect_test::{Expect, expect};
use support::build::{HeaderParts, boxed, full, sound, visual, words};
use support::ffmpeg;
use thalweg_media::header;
use thalweg_media::properties::Properties;
use thalweg_media::track::Media;

fn check(file: &[u8], expect: Expect) {
    expect.assert_eq(&match header::parse(file, 0) {
        Ok(info) => {
            let media = match info.media {
                Media::Video { width, height } => format!("{width}x{height}"),
                Media::Audio { sample_rate, channels } => format!("{sample_rate} Hz, {channels} channels"),
                Media::Text | Media::WebVtt => "text".to_owned(),
            };
            let language = info.language.unwrap_or_else(|| "-".to_owned());
            let Properties { purposes, colour, audio_objects, protection } = *info.properties;
            let protection = protection.map(|p| {
                let systems: Vec<_> = p.systems.iter().map(|s| format!(" {}={:?}", s.id, s.data())).collect();
                format!(" {} key {}{}", p.scheme.name(), p.key_id, systems.concat())
            });
            let colour = colour.map(|c| format!(" colour {}/{}/{}", c.primaries, c.transfer, c.matrix));
            let objects = audio_objects.map(|index| format!(" objects {index}"));
            let purposes: Vec<_> = purposes.list.iter().map(|p| format!(" {}", p.role())).collect();
            let properties = [colour, objects, protection].map(Option::unwrap_or_default).concat();
            let (timescale, edit) = (info.timescale, info.edit_media_time);
            format!("{} {media} /{timescale} {language} {edit}{properties}{}", info.codec, purposes.concat())
        }
        Err(error) => error.to_string(),
    });
}

#[test]
fn ffmpeg_video_codecs_are_recognised() {
    let check = |args: &str, expect: Expect| {
        let input = "-f lavfi -i testsrc2=size=128x72:rate=25 -frames:v 2";
        check(&ffmpeg(&format!("{input} -movflags +cmaf {args}")), expect);
    };
    check("-c:v libx264 -pix_fmt yuv420p", expect!["avc1.64000a 128x72 /12800 - 0"]);
    check(
        "-c:v libx264 -profile:v baseline -pix_fmt yuv420p -tag:v avc3",
        expect!["avc3.42c00a 128x72 /12800 - 0"],
    );
    check(
        "-c:v libx265 -x265-params log-level=none -pix_fmt yuv420p -tag:v hvc1",
        expect!["hvc1.1.6.L30.90 128x72 /12800 - 0"],
    );
    check(
        "-c:v libx265 -x265-params log-level=none -pix_fmt yuv420p10 -tag:v hev1",
        expect!["hev1.2.4.L30.90 128x72 /12800 - 0"],
    );
    // ffmpeg leaves av1C empty without delay_moov.
    check(
        "-c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p",
        expect!["offset 507: box 'av1C': codec configuration is truncated"],
    );
    check(
        "-movflags +cmaf+delay_moov -c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p",
        expect!["av01.0.00M.08 128x72 /12800 - 0"],
    );
    check(
        "-movflags +cmaf+delay_moov -c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p10",
        expect!["av01.0.00M.10 128x72 /12800 - 0"],
    );
    check("-c:v libvpx-vp9 -deadline realtime -pix_fmt yuv420p", expect!["vp09.00.10.08 128x72 /12800 - 0"]);
    check(
        "-c:v libx264 -pix_fmt yuv420p -vf setsar=4/3 -metadata:s:v language=ger",
        expect!["avc1.64000a 171x72 /12800 de 0"],
    );
    check("-c:v mpeg4", expect!["offset 417: box 'mp4v': codec 'mp4v' is not supported"]);
}

#[test]
fn ffmpeg_audio_codecs_are_recognised() {
    let check = |args: &str, expect: Expect| {
        let input = "-f lavfi -i sine=440:sample_rate=48000 -t 0.1";
        check(&ffmpeg(&format!("{input} {args} -movflags +cmaf+delay_moov")), expect);
    };
    check("-c:a aac", expect!["mp4a.40.2 48000 Hz, 1 channels /48000 - 0"]);
    check(
        "-c:a aac -ar 44100 -ac 6 -metadata:s:a language=swe",
        expect!["mp4a.40.2 44100 Hz, 6 channels /44100 sv 0"],
    );
    check("-c:a aac -ar 96000 -ac 2", expect!["mp4a.40.2 96000 Hz, 2 channels /96000 - 0"]);
    check("-c:a libopus -ac 2", expect!["opus 48000 Hz, 2 channels /48000 - 0"]);
    check("-c:a flac -ac 2 -strict -2", expect!["fLaC 48000 Hz, 2 channels /48000 - 0"]);
    check("-c:a ac3 -ac 6", expect!["ac-3 48000 Hz, 6 channels /48000 - 0"]);
    check("-c:a eac3 -ac 6", expect!["ec-3 48000 Hz, 6 channels /48000 - 0"]);
    check("-c:a libmp3lame -ac 2", expect!["mp4a.6b 48000 Hz, 2 channels /48000 - 0"]);
}

#[test]
fn colour_of_ffmpeg_is_read() {
    let check = |args: &str, expect: Expect| {
        let input = "-f lavfi -i testsrc2=size=128x72:rate=25 -frames:v 2 -movflags +cmaf+delay_moov";
        check(&ffmpeg(&format!("{input} {args}")), expect);
    };
    let hdr10 = "-color_primaries bt2020 -color_trc smpte2084 -colorspace bt2020nc";
    let hevc = "-c:v libx265 -preset ultrafast -x265-params log-level=none -pix_fmt yuv420p10 -tag:v hvc1";
    check(&format!("{hevc} {hdr10}"), expect!["hvc1.2.4.L30.90 128x72 /12800 - 0 colour 9/16/9"]);
    let hlg = "-color_primaries bt2020 -color_trc arib-std-b67 -colorspace bt2020nc";
    check(&format!("{hevc} {hlg}"), expect!["hvc1.2.4.L30.90 128x72 /12800 - 0 colour 9/18/9"]);
    check(
        &format!("-c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p10 {hdr10}"),
        expect!["av01.0.00M.10 128x72 /12800 - 0 colour 9/16/9"],
    );
    check(
        &format!("-c:v libvpx-vp9 -deadline realtime -pix_fmt yuv420p10 {hdr10}"),
        expect!["vp09.02.10.10 128x72 /12800 - 0 colour 9/16/9"],
    );
}

/// VP9 has its colour in vpcC too.
#[test]
fn colour_of_vp9_without_colr_is_read() {
    let vpcc = full(b"vpcC", 1, 0, &[2, 10, 0xa2, 9, 16, 9, 0, 0]);
    let entry = visual(b"vp09", (640, 360), &vpcc);
    check(
        &HeaderParts { sample_entry: entry, ..HeaderParts::video(1000) }.build(),
        expect!["vp09.02.10.10 640x360 /1000 - 0 colour 9/16/9"],
    );
    let icc = boxed(b"colr", b"prof1234");
    let nclx = boxed(b"colr", &[&b"nclx"[..], &[0, 9, 0, 18, 0, 9, 0x80]].concat());
    let avcc = boxed(b"avcC", &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let entry = visual(b"avc1", (640, 360), &[avcc, icc, nclx].concat());
    check(
        &HeaderParts { sample_entry: entry, ..HeaderParts::video(1000) }.build(),
        expect!["avc1.64001f 640x360 /1000 - 0 colour 9/18/9"],
    );
}

#[test]
fn enhanced_ac3_counts_dependent_channels_and_objects() {
    let with = |dec3: &[u8]| {
        let entry = sound(b"ec-3", 2, 48_000, &boxed(b"dec3", dec3));
        HeaderParts { sample_entry: entry, ..HeaderParts::audio(48_000) }.build()
    };
    // One independent substream of 5.1 channels.
    check(&with(&[0x0c, 0, 0x20, 0x0f, 0]), expect!["ec-3 48000 Hz, 6 channels /48000 - 0"]);
    // The same, with a dependent substream that adds a pair of rear channels: 7.1.
    check(&with(&[0x0c, 0, 0x20, 0x0f, 0x02, 0x02]), expect!["ec-3 48000 Hz, 8 channels /48000 - 0"]);
    // 5.1 with 16 audio objects (Dolby Atmos).
    check(
        &with(&[0x0c, 0, 0x20, 0x0f, 0, 0x01, 16]),
        expect!["ec-3 48000 Hz, 6 channels /48000 - 0 objects 16"],
    );
}

#[test]
fn encryption_is_read() {
    let tenc = [&[0, 0x19, 1, 0][..], &[0xab; 16], &[16], &[9; 16]].concat();
    let sinf = |scheme: &[u8; 4]| {
        let schm = full(b"schm", 0, 0, &[&scheme[..], &[0, 1, 0, 0]].concat());
        let schi = boxed(b"schi", &full(b"tenc", 1, 0, &tenc));
        boxed(b"sinf", &[boxed(b"frma", b"avc1"), schm, schi].concat())
    };
    let avcc = boxed(b"avcC", &[1, 0x64, 0, 0x1f, 0xff, 0xe0, 0]);
    let with = |sinf: &[u8], systems: &[Vec<u8>]| {
        let entry = visual(b"encv", (640, 360), &[&avcc, sinf].concat());
        let header = HeaderParts { sample_entry: entry, ..HeaderParts::video(1000) }.build();
        let moov = [&header[32..], &systems.concat()].concat();
        [&header[..24], &boxed(b"moov", &moov)].concat()
    };
    let pssh = full(b"pssh", 0, 0, &[&[0xed; 16][..], &[0, 0, 0, 2, 7, 8]].concat());
    let pssh_1 = full(b"pssh", 1, 0, &[&[0x10; 16][..], &[0, 0, 0, 1], &[5; 16], &[0, 0, 0, 0]].concat());
    check(
        &with(&sinf(b"cbcs"), &[pssh.clone(), pssh_1]),
        expect![
            "avc1.64001f 640x360 /1000 - 0 cbcs key abababab-abab-abab-abab-abababababab edededed-eded-eded-eded-edededededed=[7, 8] 10101010-1010-1010-1010-101010101010=[]"
        ],
    );
    check(
        &with(&sinf(b"cenc"), &[]),
        expect!["avc1.64001f 640x360 /1000 - 0 cenc key abababab-abab-abab-abab-abababababab"],
    );
    check(
        &with(&sinf(b"cens"), &[]),
        expect!["offset 466: box 'schm': the track is encrypted, with another scheme than cenc or cbcs"],
    );
    check(
        &with(&sinf(b"cenc"), &[full(b"pssh", 0, 0, &[0; 20])]),
        expect![
            "avc1.64001f 640x360 /1000 - 0 cenc key abababab-abab-abab-abab-abababababab 00000000-0000-0000-0000-000000000000=[]"
        ],
    );
    let long = full(b"pssh", 0, 0, &[&[0; 16][..], &[0, 0, 0x40, 0], &[0; 0x4000]].concat());
    check(
        &with(&sinf(b"cenc"), &[long]),
        expect!["offset 583: box 'pssh': 16416 exceeds PSSH_BYTES_MAX (16384)"],
    );
    check(
        &with(&sinf(b"cenc"), &vec![pssh; 33]),
        expect!["offset 1671: box 'pssh': 33 exceeds SYSTEMS_MAX (32)"],
    );
    let input = "-f lavfi -i testsrc2=size=128x72:rate=25 -frames:v 2 -c:v libx264 -movflags +cmaf";
    let key = "-encryption_scheme cenc-aes-ctr -encryption_key 00112233445566778899aabbccddeeff \
               -encryption_kid 0123456789abcdef0123456789abcdef";
    check(
        &ffmpeg(&format!("{input} -pix_fmt yuv420p {key}")),
        expect!["avc1.64000a 128x72 /12800 - 0 cenc key 01234567-89ab-cdef-0123-456789abcdef"],
    );
}

#[test]
fn purposes_are_read_from_kind_boxes() {
    let kind = |scheme: &str, value: &str| full(b"kind", 0, 0, format!("{scheme}\0{value}\0").as_bytes());
    let role = |value: &str| kind("urn:mpeg:dash:role:2011", value);
    let with = |boxes: &[Vec<u8>]| {
        HeaderParts { in_trak: boxed(b"udta", &boxes.concat()), ..HeaderParts::audio(48_000) }.build()
    };
    check(
        &with(&[role("commentary"), role("main"), role("dub"), role("commentary")]),
        expect!["ac-3 48000 Hz, 2 channels /48000 - 0 dub commentary"],
    );
    check(
        &with(&[kind("urn:other", "commentary"), role("unheard-of")]),
        expect!["ac-3 48000 Hz, 2 channels /48000 - 0"],
    );
    // QuickTime ends user data with four zero bytes.
    check(
        &with(&[role("description"), vec![0; 4]]),
        expect!["ac-3 48000 Hz, 2 channels /48000 - 0 description"],
    );
    let input = "-f lavfi -i sine=440:sample_rate=48000 -t 0.1 -c:a aac -movflags +cmaf+delay_moov";
    check(
        &ffmpeg(&format!("{input} -disposition:a:0 visual_impaired+descriptions")),
        expect!["mp4a.40.2 48000 Hz, 1 channels /48000 - 0 description"],
    );
    check(
        &ffmpeg(&format!("{input} -disposition:a:0 comment")),
        expect!["mp4a.40.2 48000 Hz, 1 channels /48000 - 0 commentary"],
    );
    check(
        &ffmpeg(&format!("{input} -disposition:a:0 dub")),
        expect!["mp4a.40.2 48000 Hz, 1 channels /48000 - 0 dub"],
    );
}

#[test]
fn text_codecs_are_recognised() {
    let text = |handler: &[u8; 4], entry: &[u8; 4]| HeaderParts {
        handler: *handler,
        sample_entry: boxed(entry, &[0; 16]),
        ..HeaderParts::video(1000)
    };
    check(&text(b"text", b"wvtt").build(), expect!["wvtt text /1000 - 0"]);
    check(&text(b"subt", b"stpp").build(), expect!["stpp.ttml.im1t text /1000 - 0"]);
    let stpp = |content_type: &str| {
        let strings = b"http://www.w3.org/ns/ttml\0\0\0";
        let mime = full(b"mime", 0, 0, &[content_type.as_bytes(), b"\0"].concat());
        let entry = boxed(b"stpp", &[&[0, 0, 0, 0, 0, 0, 0, 1][..], strings, &mime].concat());
        HeaderParts { sample_entry: entry, ..text(b"subt", b"stpp") }.build()
    };
    check(&stpp("application/ttml+xml;codecs=im1t"), expect!["stpp.ttml.im1t text /1000 - 0"]);
    check(&stpp("application/ttml+xml; codecs=\"im2t|im1t\""), expect!["stpp.ttml.im2t text /1000 - 0"]);
    check(&stpp("application/ttml+xml"), expect!["stpp.ttml.im1t text /1000 - 0"]);
    // Without a mime box, the strings of the sample entry decide.
    let strings = |strings: &[u8]| {
        let entry = boxed(b"stpp", &[&[0, 0, 0, 0, 0, 0, 0, 1][..], strings].concat());
        HeaderParts { sample_entry: entry, ..text(b"subt", b"stpp") }.build()
    };
    check(&strings(b"http://www.w3.org/ns/ttml\0\0\0"), expect!["stpp.ttml.im1t text /1000 - 0"]);
    check(&strings(b"http://www.w3.org/ns/ttml\0\0image/png\0"), expect!["stpp.ttml.im1i text /1000 - 0"]);
    check(&strings(b"unterminated"), expect!["stpp.ttml.im1t text /1000 - 0"]);
    check(&text(b"text", b"tx3g").build(), expect!["offset 345: box 'tx3g': codec 'tx3g' is not supported"]);
    check(
        &text(b"meta", b"mett").build(),
        expect!["offset 280: box 'hdlr': handler must be video, audio or text"],
    );
}

#[test]
fn language_is_read_from_mdhd_and_elng() {
    let mut parts = HeaderParts::video(1000);
    parts.language = 0x15c7;
    check(&parts.build(), expect!["avc1.64001f 640x360 /1000 en 0"]);
    parts.in_mdia = full(b"elng", 0, 0, b"en-GB\0");
    check(&parts.build(), expect!["avc1.64001f 640x360 /1000 en-GB 0"]);
}

#[test]
fn displayed_size_is_used() {
    let avcc = boxed(b"avcC", &[1, 0x4d, 0x40, 0x28, 0xff, 0xe0, 0]);
    let pasp = boxed(b"pasp", &words(&[16, 11]));
    let mut parts = HeaderParts::video(1000);
    parts.sample_entry = visual(b"avc1", (704, 576), &[avcc, pasp].concat());
    parts.tkhd_size = (1025, 576);
    check(&parts.build(), expect!["avc1.4d4028 1025x576 /1000 - 0"]);
    parts.tkhd_size = (0, 0);
    check(&parts.build(), expect!["avc1.4d4028 1024x576 /1000 - 0"]);
}

#[test]
fn edit_list_shift_is_read() {
    let with = |version: u8, entries: &[u8], count: u32| {
        let elst = full(b"elst", version, 0, &[&count.to_be_bytes()[..], entries].concat());
        HeaderParts { in_trak: boxed(b"edts", &elst), ..HeaderParts::video(90_000) }.build()
    };
    let shift = words(&[0, 7200, 0x1_0000]);
    check(&with(0, &shift, 1), expect!["avc1.64001f 640x360 /90000 - 7200"]);
    let wide = [&0u64.to_be_bytes()[..], &(1u64 << 40).to_be_bytes(), &words(&[0x1_0000])].concat();
    check(&with(1, &wide, 1), expect!["avc1.64001f 640x360 /90000 - 1099511627776"]);
    // An empty edit of 40 ms in the movie's timescale of 1000 is subtracted; an empty edit of 100
    // ms delays the track, which only files may do.
    let short = [words(&[40, u32::MAX, 0x1_0000]), shift.clone()].concat();
    check(&with(0, &short, 2), expect!["avc1.64001f 640x360 /90000 - 3600"]);
    let long = [words(&[100, u32::MAX, 0x1_0000]), shift.clone()].concat();
    check(
        &with(0, &long, 2),
        expect![
            "offset 24: box 'moov': an empty edit delays the track, which CMAF does not allow: put the delay into its timestamps, with ffmpeg's -movflags +frag_discont"
        ],
    );
    check(
        &with(0, &[shift.clone(), shift.clone()].concat(), 2),
        expect!["offset 454: box 'elst': must have at most one edit"],
    );
    check(&with(0, &shift, 2), expect!["offset 454: box 'elst': truncated, needs 32 bytes, 28 left"]);
}

#[test]
fn quicktime_sound_descriptions_are_read() {
    let dac3 = boxed(b"dac3", &[0x10, 0x3d, 0xc0]);
    let entry = |version: u16, extra: usize| {
        let mut entry = sound(b"ac-3", 2, 48_000, &[&vec![0; extra][..], &dac3].concat());
        entry[16..18].copy_from_slice(&version.to_be_bytes());
        HeaderParts { sample_entry: entry, ..HeaderParts::audio(48_000) }.build()
    };
    check(&entry(0, 0), expect!["ac-3 48000 Hz, 6 channels /48000 - 0"]);
    check(&entry(1, 0), expect!["ac-3 48000 Hz, 6 channels /48000 - 0"]);
    check(&entry(1, 16), expect!["ac-3 48000 Hz, 6 channels /48000 - 0"]);
    check(&entry(2, 36), expect!["ac-3 48000 Hz, 6 channels /48000 - 0"]);
}

#[test]
fn missing_box_is_named() {
    let good = HeaderParts::video(1000);
    let entry = |entry: Vec<u8>| HeaderParts { sample_entry: entry, ..good.clone() }.build();
    check(&entry(visual(b"avc1", (8, 8), &[])), expect!["offset 345: box 'avc1': has no 'avcC' box"]);
    check(
        &entry(visual(b"avc1", (8, 8), &boxed(b"avcC", &[1, 2]))),
        expect!["offset 431: box 'avcC': codec configuration is truncated"],
    );
    check(
        &entry(visual(b"encv", (8, 8), &[])),
        expect!["offset 345: box 'encv': the track is encrypted, but has no 'sinf' box"],
    );
    check(
        &entry(boxed(b"avc1", &[0; 20])),
        expect!["offset 345: box 'avc1': truncated, needs 32 bytes, 28 left"],
    );
    check(&entry(Vec::new()), expect!["offset 329: box 'stsd': has no sample entry"]);
    check(
        &HeaderParts { timescale: 0, ..good.clone() }.build(),
        expect!["offset 248: box 'mdhd': timescale must not be 0"],
    );
    check(&good.build()[24..], expect!["offset 0: box 'moov': must follow an ftyp"]);
    check(&boxed(b"ftyp", b"cmf2\0\0\0\0"), expect!["offset 0: box 'ftyp': has no 'moov' box"]);
    // The file has a second trak.
    let moov = good.build()[24..].to_vec();
    let trak_at = 8 + 108;
    let trak_end = trak_at + u32::from_be_bytes(moov[trak_at..trak_at + 4].try_into().unwrap()) as usize;
    let twice = [&moov[8..trak_end], &moov[trak_at..trak_end], &moov[trak_end..]].concat();
    let ftyp = boxed(b"ftyp", b"cmf2\0\0\0\0");
    check(
        &[ftyp, boxed(b"moov", &twice)].concat(),
        expect![
            "offset 16: box 'moov': fragmented MP4 with 2 tracks, but CMAF allows one per file: make it progressive, with all tracks, with `ffmpeg -i IN.mp4 -map 0 -c copy -movflags +faststart OUT.mp4`, or split it with `ffmpeg -i IN.mp4 -map 0:v:0 -c copy -movflags +cmaf+frag_keyframe OUT.mp4` (audio: `-map 0:a:0 -c copy -movflags +cmaf -frag_duration 500000`)"
        ],
    );
}
