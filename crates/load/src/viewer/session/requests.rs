//! A viewer's requests for manifests, CMAF headers, and segments, which are fetched whole or in
//! ranges.

use std::rc::Rc;
use std::time::{Duration, Instant};

use thalweg_http::{ResponseHead, Target};

use super::super::manifest::{Base, MANIFEST_BYTES_MAX, Presentation, Segment};
use super::super::playhead::State;
use super::super::transfer::Transfer;
use super::{HEADER_BYTES_MAX, Object, Viewer, arrived};
use crate::cmcd::{ObjectType, Report};
use crate::figures::Time;
use crate::response::{Sink, check_range};
use crate::{Counted, ErrorKind, Failure, Recorder, times};

/// A complete response.
pub(super) struct Received {
    /// Number of content bytes.
    pub(super) bytes: u64,
    /// Length of the complete representation, if the response is partial.
    pub(super) complete_length: Option<u64>,
}

/// A sink that passes content to `take` as it arrives.
struct ResponseSink<F> {
    recorder: Recorder,
    counted: Counted,
    range: Option<(u64, u64)>,
    status: u16,
    complete_length: Option<u64>,
    /// Arrival time of the bytes passed next.
    at: Instant,
    take: F,
}

impl<F: FnMut(Instant, &[u8])> Sink for ResponseSink<F> {
    fn head(&mut self, head: &ResponseHead) -> Result<(), Failure> {
        self.status = head.status;
        if let Some((first, last)) = self.range
            && head.status < 300
        {
            self.complete_length = check_range(head, first, last)?;
        }
        Ok(())
    }

    fn is_reading(&self) -> bool {
        has_content(self.status)
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        (self.take)(self.at, bytes);
        Ok(())
    }

    fn arrived(&mut self, at: Instant, bytes: u64) {
        self.at = at;
        self.recorder.content(self.counted, at, bytes);
    }

    fn chunk(&mut self, _at: Instant) {}
}

fn has_content(status: u16) -> bool {
    matches!(status, 200 | 206)
}

impl Viewer {
    pub(super) async fn fetch(&mut self, segment: &Segment) -> Result<(), Failure> {
        if segment.header.is_some() && segment.header != self.header {
            self.fetch_header(segment).await?;
        }
        let info = if segment.header.is_some() { self.info.clone() } else { None };
        let mut transfer = Transfer::new(segment, info);
        let chunk = self.shared.behaviour.range_bytes.filter(|_| self.state.began.get().is_none());
        let (from, length) = segment.range.map_or((0, None), |(from, length)| (from, Some(length)));
        let mut done = 0;
        loop {
            let left = length.map(|length| length - done);
            let wanted = chunk.map(|chunk| chunk.min(left.unwrap_or(chunk))).or(left);
            let range = wanted.map(|bytes| (from + done, bytes));
            let received = self.fetch_part(segment, range, &mut transfer).await?;
            done += received.bytes;
            let complete = length.or(received.complete_length);
            if received.bytes == 0 || complete.is_none_or(|complete| done >= complete) {
                break;
            }
        }
        let end = transfer.finish();
        if let Some(piece) = end.piece {
            self.media_arrived(|playhead, now| playhead.arrive(now, piece));
        }
        // A burst counts with a transfer time of zero: its rate cannot be measured, but is high.
        let (bytes, busy) = end.timed.unwrap_or((end.bytes, Duration::ZERO));
        self.choice.measured(bytes, busy);
        let recorder = &self.shared.recorder;
        recorder.viewers(|viewers| viewers.segments += 1);
        if end.timed.is_some() {
            recorder.figures().record_goodput((bytes as f64 * 8e-3 / busy.as_secs_f64()) as u64);
        }
        if end.is_faulty {
            let what = format!("{}: contradicts its CMAF header", segment.target);
            recorder.fault(&Failure::new(ErrorKind::Media, what));
        }
        Ok(())
    }

    async fn fetch_part(
        &mut self,
        segment: &Segment,
        range: Option<(u64, u64)>,
        transfer: &mut Transfer,
    ) -> Result<Received, Failure> {
        let (shared, state) = (Rc::clone(&self.shared), Rc::clone(&self.state));
        let mut starved = false;
        let received = self.get(&segment.target, Object::Segment(segment), range, |at, content| {
            transfer.push(content, at, |piece, gap| {
                shared.recorder.viewers(|viewers| viewers.chunks += 1);
                if let Some(gap) = gap {
                    shared.recorder.viewer_time(Time::ChunkGap, gap);
                }
                starved |= arrived(&shared, &state, |playhead, now| playhead.arrive(now, piece));
            });
        });
        let received = received.await;
        self.has_starved |= starved;
        received
    }

    async fn fetch_header(&mut self, segment: &Segment) -> Result<(), Failure> {
        let Some(header) = &segment.header else { return Ok(()) };
        let mut content = Vec::new();
        self.get(&header.target, Object::Header, header.range, |_, bytes| {
            if content.len() + bytes.len() <= HEADER_BYTES_MAX {
                content.extend_from_slice(bytes);
            }
        })
        .await?;
        self.info = self.shared.header(&header.target, &content);
        self.header = Some(header.clone());
        Ok(())
    }

    /// Fetches a manifest, retrying until the viewer gives up.
    pub(super) async fn manifest(
        &mut self,
        target: &str,
        before: &Rc<Presentation>,
    ) -> Option<Rc<Presentation>> {
        loop {
            match self.try_manifest(target, before).await {
                Ok(presentation) => return Some(presentation),
                Err(_) => self.failed().await?,
            }
        }
    }

    async fn try_manifest(
        &mut self,
        target: &str,
        before: &Rc<Presentation>,
    ) -> Result<Rc<Presentation>, Failure> {
        let mut content = Vec::new();
        self.get(target, Object::Manifest, None, |_, bytes| {
            if content.len() <= MANIFEST_BYTES_MAX {
                content.extend_from_slice(bytes);
            }
        })
        .await?;
        self.read_manifest(target, &content, before).map_err(|what| {
            let failure = Failure::new(ErrorKind::Manifest, format!("{target}: {what}"));
            self.shared.recorder.fault(&failure);
            failure
        })
    }

    fn read_manifest(
        &self,
        target: &str,
        content: &[u8],
        before: &Rc<Presentation>,
    ) -> Result<Rc<Presentation>, String> {
        if content.len() > MANIFEST_BYTES_MAX {
            return Err(format!("larger than {MANIFEST_BYTES_MAX} bytes"));
        }
        let authority = self.plan.target.authority.clone();
        let target = Target::new(target).map_err(|error| error.to_string())?;
        let track = (!before.periods[0].tracks.is_empty()).then_some((&**before, self.track));
        let base = Base { authority, target };
        let wall = self.shared.clock.wall();
        self.shared.manifest(&base, content, track, wall).map_err(|error| error.to_string())
    }

    /// Sends one request and counts any failure. `range` is the first byte and the length.
    pub(super) async fn get(
        &mut self,
        target: &str,
        object: Object<'_>,
        range: Option<(u64, u64)>,
        take: impl FnMut(Instant, &[u8]),
    ) -> Result<Received, Failure> {
        let range = range.map(|(from, length)| (from, from.saturating_add(length.max(1) - 1)));
        let mut fields = String::new();
        if self.shared.behaviour.cmcd {
            fields = self.cmcd(object);
            self.has_starved = false;
        }
        self.plan.target.write_request_for(target, range, &fields, &mut self.request);
        let recorder = self.shared.recorder.clone();
        let started = Instant::now();
        let counted = recorder.begin(started);
        let mut sink =
            ResponseSink { recorder, counted, range, status: 0, complete_length: None, at: started, take };
        let done = self.caller.call(&self.plan.target, &self.request, counted, &mut sink).await;
        let ResponseSink { recorder, complete_length, status, .. } = sink;
        match done {
            Ok(exchange) => {
                let failure = status_failure(exchange.status, target);
                let [ttfb, ttlb] = times(&exchange, started, None);
                let of_object = object.time().map(|time| (time, ttlb.1));
                let times: Vec<_> = [ttfb, ttlb].into_iter().chain(of_object).collect();
                recorder.end(counted, exchange.last_byte, Some(exchange.status), &times, failure.as_ref());
                failure.map_or(Ok(Received { bytes: exchange.content_bytes, complete_length }), Err)
            }
            Err(no_response) => {
                let status = (status != 0).then_some(status);
                recorder.end(counted, Instant::now(), status, &[], Some(&no_response.failure));
                Err(no_response.failure)
            }
        }
    }

    fn cmcd(&self, object: Object<'_>) -> String {
        let mut playhead = self.state.playhead.borrow_mut();
        playhead.advance(self.shared.clock.now().saturating_sub(self.state.joined));
        let is_stalled = playhead.state() == State::Stalled;
        let content = &*self.plan.target.target;
        let (object, duration) = match object {
            Object::Manifest => (ObjectType::Manifest, None),
            Object::Header => (ObjectType::Init, None),
            Object::Segment(segment) => (ObjectType::Video, Some(segment.duration)),
        };
        let (bitrate_bits_per_s, top_bits_per_s) = self.bitrates;
        Report {
            session: &self.plan.session,
            content,
            format: Some(if content.contains(".m3u8") { 'h' } else { 'd' }),
            is_live: self.is_live,
            object,
            bitrate_bits_per_s,
            top_bits_per_s,
            duration,
            buffered: Some(playhead.buffered()),
            throughput_bits_per_s: self.choice.estimate(),
            is_urgent: playhead.state() != State::Playing,
            has_starved: self.has_starved || is_stalled,
        }
        .fields()
    }
}

/// Returns a failure for any status other than 200 and 206.
fn status_failure(status: u16, target: &str) -> Option<Failure> {
    let kind = match status {
        200 | 206 => return None,
        300..400 => ErrorKind::Status3xx,
        400..500 => ErrorKind::Status4xx,
        500.. => ErrorKind::Status5xx,
        _ => ErrorKind::Malformed,
    };
    Some(Failure::new(kind, format!("{target}: responded with {status}")))
}
