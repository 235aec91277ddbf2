//! MPDs of special tracks: purposes, colour, encryption and trick play.

use super::check;
use crate::dash::on_demand;
use crate::presentation::tests::{audio, ladder, protection, track, video};
use crate::presentation::{NamedTrack, OnDemand};
use crate::properties::Colour;
use crate::track::Media;
use expect_test::expect;

/// Returns a film with HDR10 and SDR video, audio with objects, a description and a commentary, and
/// forced subtitles and captions.
pub(crate) fn rich() -> Vec<NamedTrack> {
    let mut tracks = vec![video("sdr", 360, &[25_600]), video("hdr", 720, &[25_600])];
    tracks[1].index.info.codec = String::from("hvc1.2.4.L93.90");
    tracks[1].index.info.properties.colour =
        Some(Colour { primaries: 9, transfer: 16, matrix: 9, full_range: false });
    for name in ["audio.en.description", "audio.en.commentary", "audio.en", "audio.de.default"] {
        let language = if name.contains(".de.") { "de" } else { "en" };
        tracks.push(audio(name, Some(language), &[96_000]));
    }
    let mut atmos = audio("atmos.en", Some("en"), &[96_000]);
    atmos.index.info.codec = String::from("ec-3");
    atmos.index.info.media = Media::Audio { sample_rate: 48_000, channels: 6 };
    atmos.index.info.properties.audio_objects = Some(16);
    tracks.push(atmos);
    for name in ["subs.en.forced", "subs.en.sdh", "subs.en"] {
        let mut text = track(name, "wvtt", Media::Text, 1000, &[2000]);
        text.index.info.language = Some(String::from("en"));
        tracks.push(text);
    }
    tracks
}

#[test]
fn roles_and_colour_are_written() {
    check(
        &on_demand(&OnDemand::new(rich()).unwrap()),
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT2S" maxSegmentDuration="PT2S" minBufferTime="PT2S">
              <Period id="0" start="PT0S">
                <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="25600"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="sdr" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                    <BaseURL>sdr/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="1" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
                  <EssentialProperty schemeIdUri="urn:mpeg:mpegB:cicp:ColourPrimaries" value="9"/>
                  <EssentialProperty schemeIdUri="urn:mpeg:mpegB:cicp:TransferCharacteristics" value="16"/>
                  <EssentialProperty schemeIdUri="urn:mpeg:mpegB:cicp:MatrixCoefficients" value="9"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="25600"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="hdr" bandwidth="8000" width="1280" height="720" sar="1:1" frameRate="25" codecs="hvc1.2.4.L93.90">
                    <BaseURL>hdr/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="2" lang="de" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio.de.default" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio.de.default/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="3" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="alternate"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio.en" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio.en/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="4" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="6"/>
                  <SupplementalProperty schemeIdUri="tag:dolby.com,2018:dash:EC3_ExtensionType:2018" value="JOC"/>
                  <SupplementalProperty schemeIdUri="tag:dolby.com,2018:dash:EC3_ExtensionComplexityIndex:2018" value="16"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="alternate"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="atmos.en" bandwidth="8000" audioSamplingRate="48000" codecs="ec-3">
                    <BaseURL>atmos.en/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="5" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Accessibility schemeIdUri="urn:tva:metadata:cs:AudioPurposeCS:2007" value="1"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="description"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio.en.description" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio.en.description/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="6" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
                  <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="commentary"/>
                  <SegmentTemplate timescale="48000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="96000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="audio.en.commentary" bandwidth="8000" audioSamplingRate="48000" codecs="mp4a.40.2">
                    <BaseURL>audio.en.commentary/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="7" lang="en" contentType="text" segmentAlignment="true" mimeType="application/mp4" startWithSAP="1">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="subtitle"/>
                  <SegmentTemplate timescale="1000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="2000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="subs.en" bandwidth="8000" codecs="wvtt">
                    <BaseURL>subs.en/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="8" lang="en" contentType="text" segmentAlignment="true" mimeType="application/mp4" startWithSAP="1">
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="forced-subtitle"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="subtitle"/>
                  <SegmentTemplate timescale="1000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="2000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="subs.en.forced" bandwidth="8000" codecs="wvtt">
                    <BaseURL>subs.en.forced/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
                <AdaptationSet id="9" lang="en" contentType="text" segmentAlignment="true" mimeType="application/mp4" startWithSAP="1">
                  <Accessibility schemeIdUri="urn:tva:metadata:cs:AudioPurposeCS:2007" value="2"/>
                  <Role schemeIdUri="urn:mpeg:dash:role:2011" value="caption"/>
                  <SegmentTemplate timescale="1000" media="$Time$.m4s" initialization="init.mp4">
                    <SegmentTimeline>
                      <S t="0" d="2000"/>
                    </SegmentTimeline>
                  </SegmentTemplate>
                  <Representation id="subs.en.sdh" bandwidth="8000" codecs="wvtt">
                    <BaseURL>subs.en.sdh/v1/</BaseURL>
                  </Representation>
                </AdaptationSet>
              </Period>
            </MPD>
        "#]],
    );
}

/// Returns a film with a key for each video track and one for audio, for three systems.
pub(crate) fn encrypted() -> Vec<NamedTrack> {
    let mut tracks = ladder();
    for (i, track) in tracks.iter_mut().enumerate() {
        track.index.info.properties.protection = Some(protection(i as u8));
    }
    tracks
}

#[test]
fn encryption_is_written() {
    check(
        &on_demand(&OnDemand::new(encrypted()).unwrap()),
        expect![[r#"
        <?xml version="1.0" encoding="UTF-8"?>
        <MPD xmlns="urn:mpeg:dash:schema:mpd:2011" xmlns:cenc="urn:mpeg:cenc:2013" profiles="urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019" type="static" mediaPresentationDuration="PT6S" maxSegmentDuration="PT2.005334S" minBufferTime="PT2.005334S">
          <Period id="0" start="PT0S">
            <AdaptationSet id="0" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2">
              <Role schemeIdUri="urn:mpeg:dash:role:2011" value="main"/>
              <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                <SegmentTimeline>
                  <S t="0" d="25600" r="2"/>
                </SegmentTimeline>
              </SegmentTemplate>
              <Representation id="video_360" bandwidth="8000" width="640" height="360" sar="1:1" frameRate="25" codecs="avc1.64001f">
                <ContentProtection schemeIdUri="urn:mpeg:dash:mp4protection:2011" value="cbcs" cenc:default_KID="01010101-0101-0101-0101-010101010101"/>
                <ContentProtection schemeIdUri="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed">
                  <cenc:pssh>AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAIBCA==</cenc:pssh>
                </ContentProtection>
                <ContentProtection schemeIdUri="urn:uuid:9a04f079-9840-4286-ab92-e65be0885f95">
                  <cenc:pssh>AAAAInBzc2gAAAAAmgTweZhAQoarkuZb4IhflQAAAAIBCA==</cenc:pssh>
                </ContentProtection>
                <ContentProtection schemeIdUri="urn:uuid:94ce86fb-07ff-4f43-adb8-93d2fa968ca2">
                  <cenc:pssh>AAAAInBzc2gAAAAAlM6G+wf/T0OtuJPS+paMogAAAAIBCA==</cenc:pssh>
                </ContentProtection>
                <BaseURL>video_360/v1/</BaseURL>
              </Representation>
              <Representation id="video_180" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="25" codecs="avc1.64001f">
                <ContentProtection schemeIdUri="urn:mpeg:dash:mp4protection:2011" value="cbcs" cenc:default_KID="02020202-0202-0202-0202-020202020202"/>
                <ContentProtection schemeIdUri="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed">
                  <cenc:pssh>AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAICCA==</cenc:pssh>
                </ContentProtection>
                <ContentProtection schemeIdUri="urn:uuid:9a04f079-9840-4286-ab92-e65be0885f95">
                  <cenc:pssh>AAAAInBzc2gAAAAAmgTweZhAQoarkuZb4IhflQAAAAICCA==</cenc:pssh>
                </ContentProtection>
                <ContentProtection schemeIdUri="urn:uuid:94ce86fb-07ff-4f43-adb8-93d2fa968ca2">
                  <cenc:pssh>AAAAInBzc2gAAAAAlM6G+wf/T0OtuJPS+paMogAAAAICCA==</cenc:pssh>
                </ContentProtection>
                <BaseURL>video_180/v1/</BaseURL>
              </Representation>
            </AdaptationSet>
            <AdaptationSet id="1" lang="en" contentType="audio" segmentAlignment="true" mimeType="audio/mp4" startWithSAP="1">
              <AudioChannelConfiguration schemeIdUri="urn:mpeg:mpegB:cicp:ChannelConfiguration" value="2"/>
              <ContentProtection schemeIdUri="urn:mpeg:dash:mp4protection:2011" value="cbcs" cenc:default_KID="00000000-0000-0000-0000-000000000000"/>
              <ContentProtection schemeIdUri="urn:uuid:edef8ba9-79d6-4ace-a3c8-27dcd51d21ed">
                <cenc:pssh>AAAAInBzc2gAAAAA7e+LqXnWSs6jyCfc1R0h7QAAAAIACA==</cenc:pssh>
              </ContentProtection>
              <ContentProtection schemeIdUri="urn:uuid:9a04f079-9840-4286-ab92-e65be0885f95">
                <cenc:pssh>AAAAInBzc2gAAAAAmgTweZhAQoarkuZb4IhflQAAAAIACA==</cenc:pssh>
              </ContentProtection>
              <ContentProtection schemeIdUri="urn:uuid:94ce86fb-07ff-4f43-adb8-93d2fa968ca2">
                <cenc:pssh>AAAAInBzc2gAAAAAlM6G+wf/T0OtuJPS+paMogAAAAIACA==</cenc:pssh>
              </ContentProtection>
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
}

/// Returns a film with a trick-play track of one frame per second.
pub(crate) fn with_trick_play() -> Vec<NamedTrack> {
    let mut slow = video("slow", 180, &[12_800; 6]);
    (slow.index.frame_rate, slow.index.all_sync) = (Some((1, 1)), true);
    [ladder(), vec![slow]].concat()
}

#[test]
fn trick_play_is_a_set_of_its_own() {
    let mpd = on_demand(&OnDemand::new(with_trick_play()).unwrap());
    check(
        &mpd,
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
            <AdaptationSet id="2" contentType="video" segmentAlignment="true" mimeType="video/mp4" startWithSAP="2" maxPlayoutRate="25" codingDependency="false">
              <EssentialProperty schemeIdUri="http://dashif.org/guidelines/trickmode" value="0"/>
              <SegmentTemplate timescale="12800" media="$Time$.m4s" initialization="init.mp4">
                <SegmentTimeline>
                  <S t="0" d="12800" r="5"/>
                </SegmentTimeline>
              </SegmentTemplate>
              <Representation id="slow" bandwidth="8000" width="320" height="180" sar="1:1" frameRate="1" codecs="avc1.64001f">
                <BaseURL>slow/v1/</BaseURL>
              </Representation>
            </AdaptationSet>
          </Period>
        </MPD>
    "#]],
    );
}
