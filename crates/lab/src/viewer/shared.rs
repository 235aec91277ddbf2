//! What the viewers of one thread share: manifests and CMAF headers as parsed, the clock, figures.
//!
//! Each viewer asks for its own manifests, as players do. What came is parsed once a thread, as long as it is the same: a
//! thousand viewers of a channel have one copy of its MPD.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use thalweg_media::header;
use thalweg_media::track::TrackInfo;

use super::manifest::{self, Base, Error, Presentation, Segments, dash, hls};
use super::playhead::{Playhead, State};
use crate::load::figures::Time;
use crate::load::{Clock, Recorder, micros};

/// Manifests and headers that are kept parsed: one for each target. Beyond that all are let go, and come again.
const PARSED_MAX: usize = 10_000;

/// How viewers behave.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Media before the playhead for playback to start or go on; `None`: what the manifest wants.
    pub threshold: Option<Duration>,
    /// Media that is fetched ahead of the playhead at most.
    pub ahead: Duration,
    /// On demand, segments come by ranges of so many bytes.
    pub range_bytes: Option<u64>,
    /// CMCD is sent.
    pub cmcd: bool,
}

/// A viewer's seat: what is seen of it from outside.
#[derive(Debug)]
pub struct Seat {
    /// Its playhead, on the run's clock.
    pub playhead: RefCell<Playhead>,
    /// When it was to join, on the run's clock.
    pub joined: Duration,
    /// The wall clock at media time 0, if it watches live.
    pub began: Cell<Option<Duration>>,
    /// The manifest says when that was: without, nobody knows how late what is shown is.
    pub is_dated: Cell<bool>,
    /// It has given up.
    pub is_gone: Cell<bool>,
}

/// What the viewers of a thread share.
#[derive(Debug)]
pub struct Shared {
    /// The clock of the run, the same on all threads.
    pub clock: Clock,
    /// How viewers behave.
    pub behaviour: Behaviour,
    /// Where figures are counted.
    pub recorder: Recorder,
    seats: RefCell<Vec<Rc<Seat>>>,
    parsed: RefCell<HashMap<String, Parsed>>,
    headers: RefCell<HashMap<String, Header>>,
    /// How far the server's clock is ahead of ours, in microseconds, and how long it took to find out, by target of its time.
    pub clocks: RefCell<HashMap<String, (Duration, i64)>>,
}

/// What was parsed, by hash, and the track if it is CMAF.
type Header = (u64, Option<Rc<TrackInfo>>);

#[derive(Debug)]
struct Parsed {
    hash: u64,
    presentation: Rc<Presentation>,
    media: Option<Rc<hls::Media>>,
}

impl Shared {
    /// Of a thread whose figures are counted there.
    #[must_use]
    pub fn new(recorder: Recorder, behaviour: Behaviour) -> Self {
        Self {
            clock: recorder.clock(),
            behaviour,
            recorder,
            seats: RefCell::default(),
            parsed: RefCell::default(),
            headers: RefCell::default(),
            clocks: RefCell::default(),
        }
    }

    /// A seat for a viewer that joins now.
    pub fn sit_down(&self, seat: Rc<Seat>) {
        self.seats.borrow_mut().push(seat);
    }

    /// Looks at all viewers, and lets the figures tell what they do now; whether all have seen the end or given up.
    pub fn look(&self) -> bool {
        let mut figures = self.recorder.figures();
        let viewers = figures.viewers.get_or_insert_default();
        viewers.begin_look();
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut latencies = Vec::new();
        for seat in self.seats.borrow().iter() {
            let mut playhead = seat.playhead.borrow_mut();
            if seat.is_gone.get() {
                viewers.look(None, playhead.account());
                continue;
            }
            playhead.advance(now.saturating_sub(seat.joined));
            viewers.look(Some(playhead.state()), playhead.account());
            // The picture of one who stalls stands still, and is later each second.
            if matches!(playhead.state(), State::Playing | State::Stalled)
                && seat.is_dated.get()
                && let Some(began) = seat.began.get()
            {
                latencies.push(wall.saturating_sub(began.saturating_add(playhead.position())));
            }
        }
        let is_over = viewers.now.starting + viewers.now.playing + viewers.now.stalled == 0;
        for latency in latencies {
            figures.record(Time::LiveLatency, micros(latency));
        }
        is_over
    }

    /// The look at the end: what is still going on counts as long as it has lasted.
    pub fn last_look(&self) {
        self.look();
        let mut figures = self.recorder.figures();
        for seat in self.seats.borrow().iter() {
            let playhead = seat.playhead.borrow();
            let time = match playhead.state() {
                State::Starting => Time::Startup,
                State::Stalled => Time::Stall,
                State::Playing | State::Ended => continue,
            };
            figures.record(time, micros(playhead.waited()));
        }
    }

    /// A manifest that came from `base`. `before` is the presentation so far: the playlists of an HLS presentation come into
    /// that one by one, this one for `track`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn manifest(
        &self,
        base: &Base,
        content: &[u8],
        before: Option<(&Presentation, usize)>,
        wall: Duration,
    ) -> Result<Rc<Presentation>, Error> {
        let hash = hash(content);
        let target = base.target.as_str();
        if let Some(known) = self.parsed.borrow().get(target).filter(|known| known.hash == hash) {
            return Ok(Rc::clone(&known.presentation));
        }
        let text =
            str::from_utf8(content).map_err(|_| Error { what: "manifest: is not UTF-8".to_owned() })?;
        let (presentation, media) = if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
            (dash::read(text, base)?, None)
        } else {
            match hls::read(text, base)? {
                hls::Playlist::Multivariant(tracks) => (hls::unread(tracks), None),
                hls::Playlist::Media(media) => {
                    let media = self.place(target, media, before, wall);
                    (one_read(&media, before, target), Some(Rc::new(media)))
                }
            }
        };
        let presentation = Rc::new(presentation);
        let mut parsed = self.parsed.borrow_mut();
        if parsed.len() >= PARSED_MAX {
            parsed.clear();
        }
        let kept = Parsed { hash, presentation: Rc::clone(&presentation), media };
        parsed.insert(target.to_owned(), kept);
        Ok(presentation)
    }

    /// Segments without dates, put on the line that this playlist's or another track's had.
    fn place(
        &self,
        target: &str,
        mut media: hls::Media,
        before: Option<(&Presentation, usize)>,
        wall: Duration,
    ) -> hls::Media {
        let parsed = self.parsed.borrow();
        let tracks = before.map_or(&[][..], |(presentation, _)| &presentation.periods[0].tracks);
        let targets = tracks.iter().map(|track| track.name.as_str()).chain([target]);
        let known = targets.filter_map(|target| parsed.get(target)?.media.as_deref());
        media.place(known, wall);
        media
    }

    /// The CMAF header at this target, if it is a CMAF track's.
    pub fn header(&self, target: &str, content: &[u8]) -> Option<Rc<TrackInfo>> {
        let hash = hash(content);
        if let Some((known, info)) = self.headers.borrow().get(target)
            && *known == hash
        {
            return info.clone();
        }
        let info = header::parse(content, 0).ok().map(Rc::new);
        let mut headers = self.headers.borrow_mut();
        if headers.len() >= PARSED_MAX {
            headers.clear();
        }
        headers.insert(target.to_owned(), (hash, info.clone()));
        info
    }
}

/// The presentation with this media playlist for its track; the other tracks' are to be read when they are switched to.
fn one_read(media: &hls::Media, before: Option<(&Presentation, usize)>, target: &str) -> Presentation {
    let segments = Segments::Listed(media.segments.clone());
    let alone = manifest::Track {
        name: target.to_owned(),
        bitrate: 0,
        segments: Segments::Playlist(target.to_owned()),
    };
    let (mut tracks, track) = match before {
        Some((presentation, track)) => (presentation.periods[0].tracks.clone(), track),
        None => (vec![alone], 0),
    };
    for other in &mut tracks {
        if matches!(other.segments, Segments::Listed(_)) {
            other.segments = Segments::Playlist(other.name.clone());
        }
    }
    tracks[track].segments = segments;
    Presentation { live: media.live(), ..hls::unread(tracks) }
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}
