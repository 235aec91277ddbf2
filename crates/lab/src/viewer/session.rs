//! One viewer: joins, follows, sees.
//!
//! It has one connection, on which manifests, CMAF headers and segments of one track come one after the other. A segment is
//! asked for as soon as it may be there; each chunk of it counts when it has come whole.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use thalweg_http::Target;
use thalweg_media::track::TrackInfo;

use super::choice::Choice;
use super::cmcd;
use super::http::{Answer, Connection, Failure};
use super::manifest::{Base, Found, Header, MANIFEST_BYTES_MAX, Presentation, Segment};
use super::playhead::{Change, Playhead, State, Thresholds};
use super::shared::{Seat, Shared, Stream};
use super::transfer::Transfer;

/// Failures in a row after which a viewer gives up.
pub const FAILURES_MAX: u32 = 100;
/// After a failure, before the next try.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// Tries to get one segment before it is passed over.
const SEGMENT_TRIES_MAX: u32 = 5;
/// Longest CMAF header, in bytes.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// What is buffered before playback starts, where neither the manifest nor the caller says.
const THRESHOLD: Duration = Duration::from_secs(1);
/// Of a longer buffer no more counts when it is judged to run low.
const JUDGED_MAX: Duration = Duration::from_secs(4);
/// Longer than that nothing is waited for: a manifest may ask for a century.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Manifests are not asked for more often than that.
const REFRESH_MIN: Duration = Duration::from_millis(200);

/// What one viewer is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What to watch.
    pub stream: Rc<Stream>,
    /// When to join, on the run's clock.
    pub join: Duration,
    /// How far behind where the manifest wants players; on demand, where to begin.
    pub offset: Duration,
    /// The address to come from.
    pub source: Option<IpAddr>,
    /// What CMCD calls the session.
    pub session: String,
}

/// Why a viewer has to try again.
#[derive(Debug)]
pub(super) enum Trouble {
    /// No complete response.
    Failure(Failure),
    /// One that says that it has none.
    Status(u16),
    /// Content that cannot be used, of this kind.
    Content(&'static str),
}

impl Trouble {
    fn kind(&self) -> String {
        match self {
            Trouble::Failure(failure) => failure.to_string(),
            Trouble::Status(status) => format!("status {status}"),
            Trouble::Content(kind) => (*kind).to_owned(),
        }
    }
}

/// Watches until the end of the presentation, or until there is no sense in it.
pub async fn watch(shared: Rc<Shared>, plan: Plan) {
    sleep_until(&shared, plan.join).await;
    let joined = shared.clock.now();
    let playhead = RefCell::new(Playhead::on_demand(
        Thresholds { startup: THRESHOLD, resume: THRESHOLD },
        Duration::ZERO,
    ));
    let seat = Rc::new(Seat { playhead, joined, began: Cell::new(None), is_gone: Cell::new(false) });
    shared.sit_down(Rc::clone(&seat));
    let mut viewer = Viewer {
        connection: Connection::new(plan.source),
        choice: Choice::default(),
        track: 0,
        failures: 0,
        header: None,
        info: None,
        has_starved: false,
        bitrates: (0, 0),
        shared,
        plan,
        seat,
    };
    if viewer.run().await.is_none() {
        viewer.seat.is_gone.set(true);
    }
}

async fn sleep_until(shared: &Shared, at: Duration) {
    let at = at.min(shared.clock.now() + SLEEP_MAX);
    tokio::time::sleep_until((shared.clock.began + at).into()).await;
}

struct Viewer {
    shared: Rc<Shared>,
    plan: Plan,
    seat: Rc<Seat>,
    connection: Connection,
    choice: Choice,
    track: usize,
    /// In a row.
    failures: u32,
    /// The CMAF header that came last, and what it says.
    header: Option<Header>,
    info: Option<Rc<TrackInfo>>,
    has_starved: bool,
    /// Of the track, and of the best one.
    bitrates: (u64, u64),
}

/// What a request is for.
#[derive(Clone, Copy)]
enum Object<'a> {
    Manifest,
    Header,
    Segment(&'a Segment),
}

/// How far a viewer has come.
struct Course {
    presentation: Rc<Presentation>,
    /// When its manifest was read, on the run's clock.
    read: Duration,
    /// End of the last segment; of none yet, where to begin.
    at: Duration,
    has_begun: bool,
    /// Tries to get the next segment.
    tries: u32,
}

impl Viewer {
    /// `None` if it has given up.
    async fn run(&mut self) -> Option<()> {
        let mut course = self.join().await?;
        loop {
            self.refresh_if_due(&mut course).await?;
            self.wait_for_room(&course).await;
            self.choose(&course);
            let presentation = Rc::clone(&course.presentation);
            let found = if course.has_begun {
                presentation.following(self.track, course.at)
            } else {
                presentation.containing(self.track, course.at)
            };
            match found {
                Found::Segment(segment) => self.segment(&mut course, segment).await?,
                Found::Playlist(target) => {
                    course.presentation = self.manifest(&target, &presentation).await?;
                }
                Found::NotYet => self.wait_for_manifest(&mut course).await?,
                Found::End => {
                    self.tell(Playhead::complete);
                    return Some(());
                }
            }
        }
    }

    /// Reads the manifest and takes a place in the presentation.
    async fn join(&mut self) -> Option<Course> {
        let stream = Rc::clone(&self.plan.stream);
        let nothing = Rc::new(super::manifest::hls::unread(Vec::new()));
        let mut presentation = self.manifest(&stream.target, &nothing).await?;
        self.track = self.choice.first(&bitrates(&presentation, Duration::ZERO));
        // Whether HLS is live its media playlists say.
        if let Found::Playlist(target) = presentation.containing(self.track, Duration::ZERO) {
            presentation = self.manifest(&target, &presentation).await?;
        }
        if let Some(clock) = presentation.live.as_ref().and_then(|live| live.clock.clone()) {
            self.set_clock(&clock).await;
        }
        let at = self.take_place(&presentation);
        let read = self.shared.clock.now();
        self.track = self.choice.first(&bitrates(&presentation, at));
        Some(Course { presentation, read, at, has_begun: false, tries: 0 })
    }

    /// The position to begin at, with the playhead set to it.
    fn take_place(&mut self, presentation: &Presentation) -> Duration {
        let now = self.shared.clock.now() - self.seat.joined;
        let wanted = match self.shared.behaviour.threshold {
            Some(threshold) => threshold,
            None if presentation.buffer.is_zero() => THRESHOLD,
            None => presentation.buffer,
        };
        let (position, playhead) = match &presentation.live {
            None => {
                let end = presentation.periods.last().and_then(|period| period.end);
                let position = if end.is_some_and(|end| end <= self.plan.offset) {
                    Duration::ZERO
                } else {
                    self.plan.offset
                };
                let thresholds = Thresholds { startup: wanted, resume: wanted };
                (position, Playhead::on_demand(thresholds, position))
            }
            Some(live) => {
                // Nearer to the live edge there is no more than that to be had.
                let threshold = wanted.min(live.latency / 2);
                let position = self.live_position(presentation);
                self.seat.began.set(Some(self.on_our_clock(presentation)));
                let thresholds = Thresholds { startup: threshold, resume: threshold };
                (position, Playhead::live(thresholds, now, position))
            }
        };
        let mut playhead = playhead;
        playhead.advance(now);
        *self.seat.playhead.borrow_mut() = playhead;
        position
    }

    /// Media time at the live edge.
    fn live_edge(&self, presentation: &Presentation) -> Duration {
        self.shared.clock.wall().saturating_sub(self.on_our_clock(presentation))
    }

    /// The wall clock at media time 0, as our clock would have shown it.
    fn on_our_clock(&self, presentation: &Presentation) -> Duration {
        let Some(live) = &presentation.live else { return Duration::ZERO };
        let ahead = live.clock.as_ref().and_then(|clock| self.shared.clocks.borrow().get(clock).copied());
        match ahead {
            Some(us @ 0..) => live.began.saturating_sub(Duration::from_micros(us.unsigned_abs())),
            Some(us) => live.began.saturating_add(Duration::from_micros(us.unsigned_abs())),
            None => live.began,
        }
    }

    /// The frame that a viewer with this offset is to see now, as far as there still is one.
    fn live_position(&self, presentation: &Presentation) -> Duration {
        let Some(live) = &presentation.live else { return Duration::ZERO };
        let edge = self.live_edge(presentation);
        let behind = live.latency.saturating_add(self.plan.offset).min(live.window);
        let first = presentation.periods[0].start;
        edge.saturating_sub(behind).max(first)
    }

    /// Asks the server what time it is, once a run: what differs by more than the answer took is the clocks' difference.
    async fn set_clock(&mut self, target: &str) {
        if self.shared.clocks.borrow().contains_key(target) {
            return;
        }
        let asked = self.shared.clock.wall();
        let mut text = Vec::new();
        let answer = self.get(target, Object::Manifest, None, |_, content| {
            text.extend_from_slice(&content[..content.len().min(64)]);
        });
        if answer.await.is_err() {
            return;
        }
        let took = self.shared.clock.wall() - asked;
        let server = str::from_utf8(&text).ok().and_then(|text| quick_m3u8::date::parse(text.trim()).ok());
        let Some(server) = server else { return };
        let ours = i64::try_from((asked + took / 2).as_micros()).unwrap_or(i64::MAX);
        let ahead = server.timestamp_micros().saturating_sub(ours);
        let is_told = u128::from(ahead.unsigned_abs()) > took.as_micros();
        self.shared.clocks.borrow_mut().insert(target.to_owned(), if is_told { ahead } else { 0 });
    }

    /// Reads a live manifest again, if it is time.
    async fn refresh_if_due(&mut self, course: &mut Course) -> Option<()> {
        let Some(refresh) = course.presentation.live.as_ref().and_then(|live| live.refresh) else {
            return Some(());
        };
        // A media playlist is read when nothing in it is left (wait_for_manifest).
        if self.is_hls(course)
            || self.shared.clock.now() < course.read.saturating_add(refresh.max(REFRESH_MIN))
        {
            return Some(());
        }
        self.refresh(course).await
    }

    fn is_hls(&self, course: &Course) -> bool {
        // Only a media playlist's media time counts from 1970.
        course.presentation.live.as_ref().is_some_and(|live| live.began.is_zero())
    }

    async fn refresh(&mut self, course: &mut Course) -> Option<()> {
        let period = course.presentation.period(course.at).1;
        let tracks = &period.tracks;
        let target = if self.is_hls(course) {
            tracks[self.track.min(tracks.len() - 1)].name.clone()
        } else {
            self.plan.stream.target.clone()
        };
        let presentation = Rc::clone(&course.presentation);
        course.presentation = self.manifest(&target, &presentation).await?;
        course.read = self.shared.clock.now();
        Some(())
    }

    /// The manifest lists nothing more: it is to be read again, once it may have changed (RFC 8216bis §6.3.4).
    async fn wait_for_manifest(&mut self, course: &mut Course) -> Option<()> {
        let refresh = course.presentation.live.as_ref().and_then(|live| live.refresh);
        let interval = refresh.unwrap_or(THRESHOLD).max(REFRESH_MIN);
        sleep_until(&self.shared, course.read.saturating_add(interval / 2)).await;
        self.refresh(course).await
    }

    /// Waits while enough is buffered.
    async fn wait_for_room(&self, course: &Course) {
        if !course.has_begun {
            return;
        }
        let now = self.shared.clock.now();
        self.seat.playhead.borrow_mut().advance(now - self.seat.joined);
        let buffered = self.seat.playhead.borrow().buffered();
        let too_much = buffered.saturating_sub(self.shared.behaviour.ahead);
        if !too_much.is_zero() {
            sleep_until(&self.shared, now.saturating_add(too_much)).await;
        }
    }

    /// Chooses the track of the next segment.
    fn choose(&mut self, course: &Course) {
        let bitrates = bitrates(&course.presentation, course.at);
        self.track = self.track.min(bitrates.len() - 1);
        self.bitrates = (bitrates[self.track], bitrates[bitrates.len() - 1]);
        if !course.has_begun || course.tries > 0 {
            return;
        }
        let wanted = match &course.presentation.live {
            Some(live) => live.latency.saturating_add(self.plan.offset).min(self.shared.behaviour.ahead),
            None => self.shared.behaviour.ahead,
        };
        let wanted = wanted.min(JUDGED_MAX);
        let buffered = self.seat.playhead.borrow().buffered();
        let chosen = self.choice.next(&bitrates, self.track, buffered, wanted);
        let mut figures = self.shared.figures();
        figures.switches_up += u64::from(chosen > self.track);
        figures.switches_down += u64::from(chosen < self.track);
        drop(figures);
        (self.track, self.bitrates.0) = (chosen, bitrates[chosen]);
    }

    /// Fetches a segment, after its header if that is another.
    async fn segment(&mut self, course: &mut Course, segment: Segment) -> Option<()> {
        if course.presentation.live.is_some() {
            let edge = self.live_edge(&course.presentation);
            let wait = segment.available.saturating_sub(edge);
            if !wait.is_zero() {
                // The manifest may have to be read again before.
                let refresh = course.presentation.live.as_ref().and_then(|live| live.refresh);
                let most = refresh.filter(|_| !self.is_hls(course)).unwrap_or(wait).max(REFRESH_MIN);
                sleep_until(&self.shared, self.shared.clock.now() + wait.min(most).min(SLEEP_MAX)).await;
                if wait > most {
                    return Some(());
                }
            }
        }
        match self.fetch(&segment).await {
            Ok(()) => {
                self.failures = 0;
                (course.at, course.has_begun, course.tries) = (segment.end(), true, 0);
                Some(())
            }
            Err(trouble) => {
                self.failed(&trouble).await?;
                course.tries += 1;
                self.after_failure(course, &segment);
                Some(())
            }
        }
    }

    /// What has left the window is given up for the live edge; what does not come is passed over.
    fn after_failure(&mut self, course: &mut Course, segment: &Segment) {
        if let Some(live) = &course.presentation.live {
            let edge = self.live_edge(&course.presentation);
            if segment.end().saturating_add(live.window) < edge {
                let position = self.live_position(&course.presentation);
                let now = self.shared.clock.now() - self.seat.joined;
                self.seat.playhead.borrow_mut().rejoin(now, position);
                self.shared.figures().rejoins += 1;
                (course.at, course.has_begun, course.tries) = (position, false, 0);
                return;
            }
        }
        if course.tries >= SEGMENT_TRIES_MAX {
            (course.at, course.has_begun, course.tries) = (segment.end(), true, 0);
        }
    }

    async fn fetch(&mut self, segment: &Segment) -> Result<(), Trouble> {
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

    async fn fetch_part(
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

    async fn fetch_header(&mut self, segment: &Segment) -> Result<(), Trouble> {
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
    async fn manifest(&mut self, target: &str, before: &Rc<Presentation>) -> Option<Rc<Presentation>> {
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

    async fn try_manifest(
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
    async fn get(
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

    fn cmcd(&self, object: Object<'_>) -> String {
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

    /// Counts a failure and waits; `None` if it was one too many.
    async fn failed(&mut self, trouble: &Trouble) -> Option<()> {
        self.shared.figures().error(&trouble.kind());
        self.failures += 1;
        if self.failures >= FAILURES_MAX {
            return None;
        }
        tokio::time::sleep(RETRY_AFTER).await;
        Some(())
    }

    fn tell(&self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        arrived(&self.shared, &self.seat, what);
    }

    fn arrived(&mut self, what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>) {
        self.has_starved |= arrived(&self.shared, &self.seat, what);
    }
}

/// Tells the playhead, and counts what that changes; whether a stall is over.
fn arrived(
    shared: &Shared,
    seat: &Seat,
    what: impl FnOnce(&mut Playhead, Duration) -> Option<Change>,
) -> bool {
    let change = what(&mut seat.playhead.borrow_mut(), shared.clock.now() - seat.joined);
    match change {
        Some(Change::Started(startup)) => shared.figures().startup.record(startup),
        Some(Change::Resumed(stall)) => shared.figures().stall.record(stall),
        None => {}
    }
    matches!(change, Some(Change::Resumed(_)))
}

fn bitrates(presentation: &Presentation, at: Duration) -> Vec<u64> {
    presentation.period(at).1.tracks.iter().map(|track| track.bitrate).collect()
}
