//! What a viewer asks for: manifests, CMAF headers, segments as a whole or by ranges; and what it tells with it.

use std::rc::Rc;
use std::time::Instant;

use thalweg_http::Target;

use super::super::cmcd;
use super::super::http::Answer;
use super::super::manifest::{Base, MANIFEST_BYTES_MAX, Presentation, Segment};
use super::super::playhead::State;
use super::super::transfer::Transfer;
use super::{HEADER_BYTES_MAX, Object, Trouble, Viewer, arrived};

impl Viewer {
    pub(super) async fn fetch(&mut self, segment: &Segment) -> Result<(), Trouble> {
        if segment.header.is_some() && segment.header != self.header {
            self.fetch_header(segment).await?;
        }
        let info = if segment.header.is_some() { self.info.clone() } else { None };
        let mut transfer = Transfer::new(segment, info);
        let chunk = self.shared.behaviour.range_bytes.filter(|_| self.seat.began.get().is_none());
        let (from, length) = segment.range.map_or((0, None), |(from, length)| (from, Some(length)));
        let mut done = 0;
        loop {
            let left = length.map(|length| length - done);
            let range = match (chunk, left) {
                (Some(chunk), left) => Some((from + done, Some(chunk.min(left.unwrap_or(chunk))))),
                (None, Some(left)) => Some((from + done, Some(left))),
                (None, None) => None,
            };
            let answer = self.fetch_part(segment, range, &mut transfer).await?;
            done += answer.bytes;
            let complete = length.or(answer.complete_length);
            if answer.status != 206 || answer.bytes == 0 || complete.is_none_or(|complete| done >= complete) {
                break;
            }
        }
        let end = transfer.finish();
        if let Some(piece) = end.piece {
            self.arrived(|playhead, now| playhead.arrive(now, piece));
        }
        self.choice.measured(end.bytes, end.busy);
        let mut figures = self.shared.figures();
        figures.segments += 1;
        figures.throughput.record(end.bytes, end.busy);
        if end.is_faulty {
            figures.error("media is not what its header says");
        }
        Ok(())
    }

    pub(super) async fn fetch_part(
        &mut self,
        segment: &Segment,
        range: Option<(u64, Option<u64>)>,
        transfer: &mut Transfer,
    ) -> Result<Answer, Trouble> {
        let (shared, seat) = (Rc::clone(&self.shared), Rc::clone(&self.seat));
        let mut starved = false;
        let answer = self.get(&segment.target, Object::Segment(segment), range, |status, content| {
            if !matches!(status, 200 | 206) {
                return;
            }
            transfer.push(content, Instant::now(), |piece, gap| {
                let mut figures = shared.figures();
                figures.chunks += 1;
                if let Some(gap) = gap {
                    figures.chunk_gap.record(gap);
                }
                drop(figures);
                starved |= arrived(&shared, &seat, |playhead, now| playhead.arrive(now, piece));
            });
        });
        let answer = answer.await;
        self.has_starved |= starved;
        answer
    }

    pub(super) async fn fetch_header(&mut self, segment: &Segment) -> Result<(), Trouble> {
        let Some(header) = &segment.header else { return Ok(()) };
        let range = header.range.map(|(from, length)| (from, Some(length)));
        let mut content = Vec::new();
        self.get(&header.target, Object::Header, range, |_, bytes| {
            if content.len() + bytes.len() <= HEADER_BYTES_MAX {
                content.extend_from_slice(bytes);
            }
        })
        .await?;
        self.info = self.shared.header(&header.target, &content);
        self.header = Some(header.clone());
        Ok(())
    }

    /// A manifest, after as many tries as it takes.
    pub(super) async fn manifest(
        &mut self,
        target: &str,
        before: &Rc<Presentation>,
    ) -> Option<Rc<Presentation>> {
        loop {
            match self.try_manifest(target, before).await {
                Ok(presentation) => {
                    self.failures = 0;
                    return Some(presentation);
                }
                Err(trouble) => self.failed(&trouble).await?,
            }
        }
    }

    pub(super) async fn try_manifest(
        &mut self,
        target: &str,
        before: &Rc<Presentation>,
    ) -> Result<Rc<Presentation>, Trouble> {
        let mut content = Vec::new();
        self.get(target, Object::Manifest, None, |_, bytes| {
            if content.len() <= MANIFEST_BYTES_MAX {
                content.extend_from_slice(bytes);
            }
        })
        .await?;
        if content.len() > MANIFEST_BYTES_MAX {
            return Err(Trouble::Content("manifest is too long"));
        }
        let authority = self.plan.stream.server.authority.clone();
        let target = Target::new(target).map_err(|_| Trouble::Content("manifest's target"))?;
        let track = (!before.periods[0].tracks.is_empty()).then_some((&**before, self.track));
        let base = Base { authority, target };
        self.shared.manifest(&base, &content, track, self.shared.clock.wall()).map_err(|error| {
            tracing::debug!(%error, "manifest");
            Trouble::Content("manifest cannot be played")
        })
    }

    /// One request; anything but 200 and 206 is trouble.
    pub(super) async fn get(
        &mut self,
        target: &str,
        object: Object<'_>,
        range: Option<(u64, Option<u64>)>,
        mut take: impl FnMut(u16, &[u8]),
    ) -> Result<Answer, Trouble> {
        let mut fields = String::new();
        if let Some((from, length)) = range {
            let last = length.map(|length| (from + length.max(1) - 1).to_string()).unwrap_or_default();
            fields = format!("Range: bytes={from}-{last}\r\n");
        }
        if self.shared.behaviour.cmcd {
            fields += &self.cmcd(object);
            self.has_starved = false;
        }
        let (stream, shared) = (Rc::clone(&self.plan.stream), Rc::clone(&self.shared));
        let count = |status, content: &[u8]| {
            shared.figures().bytes += content.len() as u64;
            take(status, content);
        };
        let answer =
            self.connection.get(&stream.server, target, &fields, count).await.map_err(Trouble::Failure)?;
        let mut figures = self.shared.figures();
        figures.requests += 1;
        figures.ttfb.record(answer.ttfb);
        drop(figures);
        if !matches!(answer.status, 200 | 206) {
            return Err(Trouble::Status(answer.status));
        }
        Ok(answer)
    }

    pub(super) fn cmcd(&self, object: Object<'_>) -> String {
        let (bitrate, top) = self.bitrates;
        let playhead = self.seat.playhead.borrow();
        let (object, duration) = match object {
            Object::Manifest => ('m', None),
            Object::Header => ('i', None),
            Object::Segment(segment) => ('v', Some(segment.duration)),
        };
        cmcd::fields(&cmcd::Report {
            session: &self.plan.session,
            content: &self.plan.stream.target,
            format: if self.plan.stream.target.contains(".m3u8") { 'h' } else { 'd' },
            is_live: self.seat.began.get().is_some(),
            object,
            bitrate_bits_per_s: bitrate,
            top_bits_per_s: top,
            duration,
            buffered: playhead.buffered(),
            throughput_bits_per_s: self.choice.estimate(),
            is_urgent: playhead.state() != State::Playing,
            has_starved: self.has_starved,
        })
    }
}
