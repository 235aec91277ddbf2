//! Scripted server of a live track: CMAF chunks become available at the times given by the MPD,
//! except for a gap.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Segment duration.
pub(crate) const SEGMENT: Duration = Duration::from_secs(1);
/// Chunk duration.
pub(crate) const CHUNK: Duration = Duration::from_millis(250);
/// The MPD's target latency.
pub(crate) const LATENCY: Duration = Duration::from_secs(1);
/// Number of the first segment.
pub(crate) const FIRST: u64 = 7;
/// Time that the channel has been on air when a test starts.
const ON_AIR: Duration = Duration::from_secs(10);
const TIMESCALE: u64 = 12_288;

/// Faults to inject.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Script {
    /// A gap: chunks due between these two times after the start are delayed until the second time.
    pub(crate) hole: Option<(Duration, Duration)>,
    /// Number of a segment for which the server responds with 404.
    pub(crate) missing: Option<u64>,
}

impl Script {
    /// Starts serving until the process exits. Returns the address.
    pub(crate) fn start(self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let began = now() - ON_AIR;
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                thread::spawn(move || self.serve(stream, began));
            }
        });
        address
    }

    fn serve(self, mut stream: TcpStream, began: Duration) -> Option<()> {
        let mut lines = BufReader::new(stream.try_clone().ok()?).lines();
        loop {
            let request = lines.next()?.ok()?;
            while !lines.next()?.ok()?.is_empty() {}
            let path = request.split(' ').nth(1)?;
            let number = path.strip_prefix("/v/").and_then(|rest| rest.strip_suffix(".m4s")?.parse().ok());
            match (path, number) {
                ("/live.mpd", _) => whole(&mut stream, "200 OK", mpd(began).as_bytes()),
                ("/nonsense", _) => whole(&mut stream, "200 OK", b"<MPD type=\"dynamic\"><Period>"),
                ("/v/init.mp4", _) => whole(&mut stream, "200 OK", &header()),
                (_, Some(number)) if Some(number) != self.missing && number >= FIRST => {
                    self.segment(&mut stream, began, number - FIRST)
                }
                _ => whole(&mut stream, "404 Not Found", b""),
            }?;
        }
    }

    /// Sends a segment, each chunk when due.
    fn segment(self, stream: &mut TcpStream, began: Duration, index: u64) -> Option<()> {
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").ok()?;
        let each = (SEGMENT.as_millis() / CHUNK.as_millis()) as u64;
        for number in index * each..(index + 1) * each {
            let mut due = began + CHUNK * u32::try_from(number + 1).ok()?;
            if let Some((from, to)) = self.hole
                && due > began + ON_AIR + from
            {
                due = due.max(began + ON_AIR + to);
            }
            thread::sleep(due.saturating_sub(now()));
            let bytes = chunk(number);
            stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).ok()?;
            stream.write_all(&[&bytes[..], b"\r\n"].concat()).ok()?;
        }
        stream.write_all(b"0\r\n\r\n").ok()
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn whole(stream: &mut TcpStream, status: &str, content: &[u8]) -> Option<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", content.len());
    stream.write_all(&[head.as_bytes(), content].concat()).ok()
}

fn mpd(began: Duration) -> String {
    let began = iso_8601(began);
    let (latency, duration) = (LATENCY.as_millis(), TIMESCALE * SEGMENT.as_secs());
    let early = (SEGMENT - CHUNK).as_secs_f64();
    format!(
        r#"<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="dynamic" availabilityStartTime="{began}" minimumUpdatePeriod="PT2S"
          minBufferTime="PT0.25S" timeShiftBufferDepth="PT30S">
          <ServiceDescription><Latency target="{latency}"/></ServiceDescription>
          <Period id="0" start="PT0S"><AdaptationSet contentType="video" mimeType="video/mp4">
          <SegmentTemplate timescale="{TIMESCALE}" duration="{duration}" startNumber="{FIRST}" availabilityTimeOffset="{early}"
            availabilityTimeComplete="false" media="$RepresentationID$/$Number$.m4s" initialization="v/init.mp4"/>
          <Representation id="v" bandwidth="100000"/></AdaptationSet></Period></MPD>"#
    )
}

/// Formats a time as in an MPD.
fn iso_8601(time: Duration) -> String {
    let utc = thalweg_media::presentation::utc::Utc::from_micros(i64::try_from(time.as_micros()).unwrap());
    utc.to_string()
}

/// Returns the sample's CMAF header.
fn header() -> Vec<u8> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/sample/video_180.mp4");
    let bytes = std::fs::read(file).unwrap();
    let moof = bytes.windows(4).position(|kind| kind == b"moof").unwrap() - 4;
    // This includes any sidx before the first moof, which is not part of the header but harmless.
    bytes[..moof].to_vec()
}

/// Builds a chunk (moof and mdat) with one sample.
fn chunk(number: u64) -> Vec<u8> {
    const SAMPLE_BYTES: u32 = 1000;
    let units = u64::try_from(CHUNK.as_millis()).unwrap() * TIMESCALE / 1000;
    let full = |kind: &[u8; 4], version: u8, flags: u32, fields: &[&[u8]]| {
        boxed(kind, &[&[&(u32::from(version) << 24 | flags).to_be_bytes()[..]], fields].concat())
    };
    // Flag default-base-is-moof; track 1.
    let tfhd = full(b"tfhd", 0, 0x02_0000, &[&1u32.to_be_bytes()]);
    let tfdt = full(b"tfdt", 1, 0, &[&(number * units).to_be_bytes()]);
    let moof = |data_offset: u32| {
        // Data offset, then duration and size of the one sample.
        let trun = full(
            b"trun",
            0,
            0x301,
            &[
                &1u32.to_be_bytes(),
                &data_offset.to_be_bytes(),
                &u32::try_from(units).unwrap().to_be_bytes(),
                &SAMPLE_BYTES.to_be_bytes(),
            ],
        );
        let mfhd = full(b"mfhd", 0, 0, &[&u32::try_from(number + 1).unwrap().to_be_bytes()]);
        boxed(b"moof", &[&mfhd, &boxed(b"traf", &[&tfhd, &tfdt, &trun])])
    };
    let moof = moof(u32::try_from(moof(0).len()).unwrap() + 8);
    [moof, boxed(b"mdat", &[&[0; SAMPLE_BYTES as usize]])].concat()
}

fn boxed(kind: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let size = u32::try_from(content.len() + 8).unwrap();
    [&size.to_be_bytes()[..], kind, &content].concat()
}
