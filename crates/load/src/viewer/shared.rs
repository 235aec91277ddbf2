//! State shared by the viewers of one thread: parsed manifests, CMAF headers, the clock, and
//! figures.
//!
//! Each viewer requests its own manifests, as players do. Identical responses are parsed once per
//! thread: a thousand viewers of a channel share one parsed MPD.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::time::Duration;

use thalweg_media::header;
use thalweg_media::track::TrackInfo;

use super::manifest::{self, Base, Error, Presentation, Segments, dash, hls};
use super::playhead::{Playhead, State};
use crate::figures::Time;
use crate::{Clock, Recorder, micros};

/// Maximum parsed manifests and, separately, parsed headers; each target has at most one. At the
/// limit, all of them are dropped and parsed again when needed.
const PARSED_MAX: usize = 10_000;

/// Behaviour of viewers.
#[derive(Debug, Clone)]
pub struct Behaviour {
    /// Buffer required to start or resume playback; if `None`, the manifest decides.
    pub threshold: Option<Duration>,
    /// Maximum media fetched ahead of the playhead.
    pub ahead: Duration,
    /// Size of the ranges in which to fetch on-demand segments; if `None`, they are fetched whole.
    pub range_bytes: Option<u64>,
    /// Whether to send CMCD.
    pub cmcd: bool,
}

/// State of a viewer, sampled by its thread.
#[derive(Debug)]
pub struct ViewerState {
    /// The viewer's playhead.
    pub playhead: RefCell<Playhead>,
    /// Time at which the viewer was due to join, on the run's clock.
    pub joined: Duration,
    /// Unix time at media time 0, if live.
    pub began: Cell<Option<Duration>>,
    /// Whether the manifest gives `began`; otherwise the live latency is unknown.
    pub is_dated: Cell<bool>,
    /// Whether the viewer has given up.
    pub is_gone: Cell<bool>,
}

/// State shared by the viewers of one thread.
#[derive(Debug)]
pub struct Shared {
    /// The run's clock, shared by all threads.
    pub clock: Clock,
    /// Behaviour of the viewers.
    pub behaviour: Behaviour,
    /// Recorder for the viewers' figures.
    pub recorder: Recorder,
    viewer_states: RefCell<Vec<Rc<ViewerState>>>,
    parsed: RefCell<HashMap<String, Parsed>>,
    headers: RefCell<HashMap<String, Header>>,
    /// For each target that returns the server's time: the duration of the quickest request, and
    /// the time in microseconds by which the server's clock is ahead.
    pub clocks: RefCell<HashMap<String, (Duration, i64)>>,
}

/// Hash of a CMAF header, and the parsed track information if valid.
type Header = (u64, Option<Rc<TrackInfo>>);

#[derive(Debug)]
struct Parsed {
    hash: u64,
    presentation: Rc<Presentation>,
    media: Option<Rc<hls::Media>>,
}

impl Shared {
    /// Creates the state for the thread of `recorder`.
    #[must_use]
    pub fn new(recorder: Recorder, behaviour: Behaviour) -> Self {
        Self {
            clock: recorder.clock(),
            behaviour,
            recorder,
            viewer_states: RefCell::default(),
            parsed: RefCell::default(),
            headers: RefCell::default(),
            clocks: RefCell::default(),
        }
    }

    /// Registers a viewer that joins now.
    pub fn register(&self, viewer: Rc<ViewerState>) {
        self.viewer_states.borrow_mut().push(viewer);
    }

    /// Samples all viewers into the figures. Returns whether all have finished or given up.
    pub fn sample(&self) -> bool {
        let mut figures = self.recorder.figures();
        let viewers = figures.viewers.get_or_insert_default();
        viewers.begin_sample();
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut latencies = Vec::new();
        for viewer in self.viewer_states.borrow().iter() {
            let mut playhead = viewer.playhead.borrow_mut();
            if viewer.is_gone.get() {
                viewers.add_viewer(None, playhead.account());
                continue;
            }
            playhead.advance(now.saturating_sub(viewer.joined));
            viewers.add_viewer(Some(playhead.state()), playhead.account());
            // Include stalled viewers: their latency grows every second.
            if matches!(playhead.state(), State::Playing | State::Stalled)
                && viewer.is_dated.get()
                && let Some(began) = viewer.began.get()
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

    /// Takes the final sample. Unfinished startups and stalls count with their length so far.
    pub fn last_sample(&self) {
        self.sample();
        let mut figures = self.recorder.figures();
        for viewer in self.viewer_states.borrow().iter() {
            let playhead = viewer.playhead.borrow();
            let time = match playhead.state() {
                State::Starting => Time::Startup,
                State::Stalled => Time::Stall,
                State::Playing | State::Ended => continue,
            };
            figures.record(time, micros(playhead.waited()));
        }
    }

    /// Parses a manifest located at `base`. `before` is the current presentation and track; HLS
    /// media playlists are merged into it one by one.
    ///
    /// # Errors
    ///
    /// Returns an error if the manifest cannot be played.
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
        let text = str::from_utf8(content).map_err(|_| Error { what: "manifest: not UTF-8".to_owned() })?;
        let (presentation, media) = if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
            (dash::read(text, base)?, None)
        } else {
            match hls::read(text, base)? {
                hls::Playlist::Multivariant(tracks) => (hls::unread(tracks), None),
                hls::Playlist::Media(media) => {
                    let media = self.place(target, media, before, wall);
                    (with_playlist(&media, before, target), Some(Rc::new(media)))
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

    /// Assigns media times to undated segments, using earlier versions of the playlist or other
    /// tracks.
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

    /// Parses `content`, the CMAF header at `target`, unless it was parsed before. Returns `None`
    /// if it is invalid.
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

/// Returns the presentation with a media playlist merged into its track; other tracks' playlists
/// are read when switching to them.
fn with_playlist(media: &hls::Media, before: Option<(&Presentation, usize)>, target: &str) -> Presentation {
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
