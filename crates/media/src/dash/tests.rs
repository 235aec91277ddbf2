//! MPD tests: the exact text, and its interpretation by an independent parser.

pub(crate) mod tracks;

use crate::presentation::OnDemand;
use crate::presentation::live::Produced;
use crate::presentation::tests::{audio, channel, ladder, track, video};
use crate::presentation::utc::Utc;
use crate::track::Media;
use dash_mpd_core::MPD;
use expect_test::{Expect, expect};

/// Checks the text against `expect`, and requires a third-party parser to recognise every element
/// and attribute.
pub(crate) fn check(mpd: &str, expect: Expect) -> MPD {
    expect.assert_eq(mpd);
    let mut unknown = Vec::new();
    let deserializer = &mut quick_xml::de::Deserializer::from_str(mpd);
    let parsed: MPD =
        serde_ignored::deserialize(deserializer, |path| unknown.push(path.to_string())).unwrap();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert_eq!(dash_mpd_core::check_conformity(&parsed), Vec::<String>::new());
    assert_in_order(mpd);
    parsed
}

/// Checks the order of child elements against the schema's sequences (ISO/IEC 23009-1 Annex B).
fn assert_in_order(mpd: &str) {
    const ORDER: [(&str, &[&str]); 5] = [
        ("MPD", &["ServiceDescription", "Period", "UTCTiming"]),
        ("ServiceDescription", &["Latency", "PlaybackRate"]),
        ("Period", &["BaseURL", "AdaptationSet"]),
        (
            "AdaptationSet",
            &[
                "AudioChannelConfiguration",
                "ContentProtection",
                "EssentialProperty",
                "SupplementalProperty",
                "ProducerReferenceTime",
                "Resync",
                "Accessibility",
                "Role",
                "SegmentTemplate",
                "Representation",
            ],
        ),
        ("Representation", &["ContentProtection", "EssentialProperty", "BaseURL", "SegmentTemplate"]),
    ];
    let mut reader = quick_xml::Reader::from_str(mpd);
    let mut open: Vec<(String, usize)> = Vec::new();
    loop {
        let event = reader.read_event().unwrap();
        let (start, empty) = match &event {
            quick_xml::events::Event::Start(start) => (start, false),
            quick_xml::events::Event::Empty(start) => (start, true),
            quick_xml::events::Event::End(_) => {
                open.pop();
                continue;
            }
            quick_xml::events::Event::Eof => break,
            _ => continue,
        };
        let name = start.name().as_ref().to_owned();
        if let Some((parent, last)) = open.last_mut()
            && let Some((_, children)) = ORDER.iter().find(|o| o.0 == parent)
        {
            let at =
                children.iter().position(|c| *c == name).unwrap_or_else(|| panic!("{parent} has no {name}"));
            assert!(at >= *last, "{name} is out of order in {parent}");
            *last = at;
        }
        if !empty {
            open.push((name, 0));
        }
    }
}

#[test]
fn on_demand_mpd_describes_every_track() {
    let presentation = OnDemand::new(ladder()).unwrap();
    let parsed = check(
        &super::on_demand(&presentation),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT6S" maxSegmentDuration="PT2.005334S" minBufferTime="PT2.005334S">
              <Period id="0" start="PT0S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="25600" r="2"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="video_360" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_360/v1/</BaseURL>
                  </Representation>
                  <Representation id="video_180" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>video_180/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="1" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="95232" r="1"/>
                      <S d="96256"/>
                      <S d="1024"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
    assert_eq!(parsed.mediaPresentationDuration.unwrap().as_secs_f64(), 6.0);
}

#[test]
fn different_timescales_get_separate_timelines() {
    let video_90k =
        track("b", "avc1.64001f", Media::Video { width: 640, height: 360 }, 90_000, &[180_000, 180_000]);
    let presentation = OnDemand::new(vec![video("a", 180, &[25_600, 25_600]), video_90k]).unwrap();
    check(
        &super::on_demand(&presentation),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT4S" maxSegmentDuration="PT2S" minBufferTime="PT2S">
              <Period id="0" start="PT0S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <Representation id="a" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>a/v1/</BaseURL>
                    <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                      <SegmentTimeline>
                        <S t="0" d="25600" r="1"/>
                      </SegmentTimeline>
                    </SegmentTemplate>
                  </Representation>
                  <Representation id="b" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>b/v1/</BaseURL>
                    <SegmentTemplate timescale="90000" media="$Time$.m4s" initialization="init.mp4">
                      <SegmentTimeline>
                        <S t="0" d="180000" r="1"/>
                      </SegmentTimeline>
                    </SegmentTemplate>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
}

#[test]
fn late_start_and_gap_are_written() {
    let mut tracks =
        vec![video("v", 180, &[25_600, 25_600, 25_600]), audio("a", None, &[96_000, 96_000, 96_000])];
    for segment in &mut tracks[0].index.segments {
        segment.time += 128_000;
    }
    for segment in &mut tracks[1].index.segments {
        segment.time += 480_000;
    }
    tracks[1].index.segments.remove(1);
    check(
        &super::on_demand(&OnDemand::new(tracks).unwrap()),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT6S" maxSegmentDuration="PT2S" minBufferTime="PT2S">
              <Period id="0" start="PT0S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" presentationTimeOffset="128000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="128000" d="25600" r="2"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="v" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>v/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="1" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" presentationTimeOffset="480000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="480000" d="96000"/>
                      <S t="672000" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="a" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>a/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
}

#[test]
fn special_characters_are_escaped() {
    let mut track = audio("a", None, &[96_000]);
    track.index.info.codec = String::from("x<&\">\u{1}");
    let presentation = OnDemand::new(vec![track]).unwrap();
    let parsed = check(
        &super::on_demand(&presentation),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT2S" maxSegmentDuration="PT2S" minBufferTime="PT2S">
              <Period id="0" start="PT0S">
                <AdaptationSet id="0" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="a" bandwidth="8000" audioSamplingRate="48000" codecs="x&lt;&amp;&quot;&gt;�">
                    <BaseURL>a/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
    let representation = &parsed.periods[0].adaptations[0].representations[0];
    assert_eq!(representation.codecs.as_deref(), Some("x<&\">\u{fffd}"));
}

#[test]
fn live_mpd_has_a_period_per_epoch() {
    check(
        &super::live(&channel()),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019,http://www.dashif.org/guidelines/low-latency-live-v5" type="dynamic" availabilityStartTime="2026-11-20T23:35:18.250Z" publishTime="2026-11-20T23:36:30.250Z" minimumUpdatePeriod="PT2S" minBufferTime="PT0.5S" timeShiftBufferDepth="PT60S" suggestedPresentationDelay="PT2S" maxSegmentDuration="PT2S">
              <ServiceDescription id="0">
                <Latency referenceId="0" target="2000" max="4000" min="1000"/>
                <PlaybackRate max="1.04" min="0.96"/>
              </ServiceDescription>
              <Period id="0" start="PT0S" duration="PT60S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <ProducerReferenceTime id="0" inband="true" type="encoder" wallClockTime="2026-11-20T23:35:18.250Z" presentationTime="128000"/>
                  <Resync type="0" dT="6400"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" presentationTimeOffset="128000" availabilityTimeOffset="1.5" availabilityTimeComplete="false" duration="25600" startNumber="0" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-0.mp4"/>
                  <Representation id="stream0" bandwidth="9000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f"/>
                </AdaptationSet>
                <AdaptationSet id="1" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <ProducerReferenceTime id="1" inband="true" type="encoder" wallClockTime="2026-11-20T23:35:18.250Z" presentationTime="480000"/>
                  <Resync type="1" dT="24000"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" presentationTimeOffset="480000" availabilityTimeOffset="1.5" availabilityTimeComplete="false" duration="96000" startNumber="0" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-0.mp4"/>
                  <Representation id="stream1" bandwidth="9000" audioSamplingRate="48000" codecs="mp4a.40.2"/>
                </AdaptationSet>
              </Period>
              <Period id="1" start="PT61.2S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <ProducerReferenceTime id="0" inband="true" type="encoder" wallClockTime="2026-11-20T23:36:19.450Z" presentationTime="128000"/>
                  <Resync type="0" dT="6400"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" presentationTimeOffset="128000" availabilityTimeOffset="1.5" availabilityTimeComplete="false" duration="25600" startNumber="30" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-30.mp4"/>
                  <Representation id="stream0" bandwidth="9000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f"/>
                </AdaptationSet>
                <AdaptationSet id="1" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <ProducerReferenceTime id="1" inband="true" type="encoder" wallClockTime="2026-11-20T23:36:19.450Z" presentationTime="480000"/>
                  <Resync type="1" dT="24000"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" presentationTimeOffset="480000" availabilityTimeOffset="1.5" availabilityTimeComplete="false" duration="96000" startNumber="30" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-30.mp4"/>
                  <Representation id="stream1" bandwidth="9000" audioSamplingRate="48000" codecs="mp4a.40.2"/>
                </AdaptationSet>
              </Period>
              <UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-iso:2014" value="/time"/>
            </MPD>
        "#]],
    );
}

#[test]
fn ended_period_has_its_exact_duration() {
    let mut channel = channel();
    channel.epochs[1].end_us = Some(70_000_000);
    let mpd = dash_mpd_core::parse(&super::live(&channel)).unwrap();
    let seconds: Vec<_> = mpd.periods.iter().map(|p| p.duration.map(|d| d.as_secs_f64())).collect();
    assert_eq!(seconds, [Some(60.0), Some(8.8)]);
}

#[test]
fn set_starts_with_sap_only_if_every_segment_does() {
    let mut channel = channel();
    channel.epochs[0].tracks[0].segments[1].sync = false;
    let mpd = super::live(&channel);
    let sets: Vec<_> = mpd.lines().filter(|l| l.contains("<AdaptationSet")).collect();
    let sap: Vec<_> = sets.iter().map(|set| set.contains("startWithSAP")).collect();
    assert_eq!(sap, [false, true, true, true]);
}

#[test]
fn live_mpd_uses_encoder_time_and_long_chunks() {
    let mut channel = channel();
    channel.epochs.remove(0);
    channel.epochs[0].produced = Some(Produced { wall: Utc(1_795_217_779_000), media_time: 134_400 });
    channel.epochs[0].chunk_duration = 25_600;
    channel.epochs[0].tracks[1].inband_prft = false;
    check(
        &super::live(&channel),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019,http://www.dashif.org/guidelines/low-latency-live-v5" type="dynamic" availabilityStartTime="2026-11-20T23:35:18.250Z" publishTime="2026-11-20T23:36:30.250Z" minimumUpdatePeriod="PT2S" minBufferTime="PT2S" timeShiftBufferDepth="PT60S" suggestedPresentationDelay="PT6S" maxSegmentDuration="PT2S">
              <ServiceDescription id="0">
                <Latency referenceId="0" target="6000" max="12000" min="3000"/>
                <PlaybackRate max="1.04" min="0.96"/>
              </ServiceDescription>
              <Period id="1" start="PT61.2S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <ProducerReferenceTime id="0" inband="true" type="encoder" wallClockTime="2026-11-20T23:36:19.000Z" presentationTime="134400"/>
                  <Resync type="0" dT="25600"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" presentationTimeOffset="128000" duration="25600" startNumber="30" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-30.mp4"/>
                  <Representation id="stream0" bandwidth="9000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f"/>
                </AdaptationSet>
                <AdaptationSet id="1" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <ProducerReferenceTime id="1" inband="false" type="encoder" wallClockTime="2026-11-20T23:36:19.000Z" presentationTime="504000"/>
                  <Resync type="1" dT="96000"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" presentationTimeOffset="480000" duration="96000" startNumber="30" media="$RepresentationID$/$Number$.m4s" initialization="$RepresentationID$/init-30.mp4"/>
                  <Representation id="stream1" bandwidth="9000" audioSamplingRate="48000" codecs="mp4a.40.2"/>
                </AdaptationSet>
              </Period>
              <UTCTiming schemeIdUri="urn:mpeg:dash:utc:http-iso:2014" value="/time"/>
            </MPD>
        "#]],
    );
}

#[test]
fn fractional_frame_rate_keeps_numbers_exact() {
    let mut channel = channel();
    channel.epochs.remove(0);
    let epoch = &mut channel.epochs[0];
    // A segment of 60 frames, each 1001/30000 s long, lasts 88,288.2 samples at 44.1 kHz. Rounding
    // it would make segment numbers drift, so the audio template must use the epoch's timescale.
    (epoch.timescale, epoch.media_start, epoch.segment_duration) = (30_000, 0, 60_060);
    epoch.chunk_duration = 15_015;
    epoch.tracks[1].info.timescale = 44_100;
    let mpd = super::live(&channel);
    let templates: Vec<_> = mpd.lines().filter(|l| l.contains("<SegmentTemplate")).collect();
    assert!(
        templates.iter().all(|t| t.contains(r#"timescale="30000""#) && t.contains(r#"duration="60060""#))
    );
}
