//! What the viewers of one thread share: manifests and CMAF headers as parsed, the clock, figures.
//!
//! Each viewer asks for its own manifests, as players do. What came is parsed once a thread, as long as it is the same: a
//! thousand viewers of a channel have one copy of its MPD.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use thalweg_media::header;
use thalweg_media::track::TrackInfo;

use super::figures::Figures;
use super::http::Server;
use super::manifest::{self, Base, Error, Presentation, Segments, dash, hls};
use super::playhead::{Playhead, State};

/// Manifests and headers that are kept parsed: one for each target. Beyond that all are let go, and come again.
const PARSED_MAX: usize = 10_000;

/// What to watch, where.
#[derive(Debug, Clone)]
pub struct Stream {
    /// The server.
    pub server: Server,
    /// The target of the MPD or playlist.
    pub target: String,
}

/// Wall clock and time since the run began.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// When it began.
    pub began: Instant,
    /// The wall clock then, since 1970.
    pub began_wall: Duration,
}

impl Clock {
    /// One that begins now.
    #[must_use]
    pub fn start() -> Self {
        let began_wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_wall }
    }

    /// Time since it began.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The wall clock, since 1970. It runs evenly, whatever sets the machine's meanwhile.
    #[must_use]
    pub fn wall(&self) -> Duration {
        self.began_wall + self.now()
    }
}

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
    /// When it joined, on the run's clock.
    pub joined: Duration,
    /// The wall clock at media time 0, if it watches live.
    pub began: Cell<Option<Duration>>,
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
    figures: Arc<Mutex<Figures>>,
    seats: RefCell<Vec<Rc<Seat>>>,
    parsed: RefCell<HashMap<String, Parsed>>,
    headers: RefCell<HashMap<String, Header>>,
    /// How far the server's clock is ahead of ours, in microseconds, by target of its time.
    pub clocks: RefCell<HashMap<String, i64>>,
    /// Viewers that have not joined yet.
    pub waiting: Cell<u64>,
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
    /// Of a thread whose figures are told here.
    #[must_use]
    pub fn new(clock: Clock, behaviour: Behaviour, figures: Arc<Mutex<Figures>>, viewers: u64) -> Self {
        Self {
            clock,
            behaviour,
            figures,
            seats: RefCell::default(),
            parsed: RefCell::default(),
            headers: RefCell::default(),
            clocks: RefCell::default(),
            waiting: Cell::new(viewers),
        }
    }

    /// The thread's figures.
    pub fn figures(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A seat for a viewer that joins now.
    pub fn sit_down(&self, seat: Rc<Seat>) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
        self.seats.borrow_mut().push(seat);
    }

    /// Looks at all viewers, and lets their figures tell what they do now.
    pub fn look(&self) {
        let mut figures = self.figures();
        figures.begin_look();
        figures.now.waiting = self.waiting.get();
        let (now, wall) = (self.clock.now(), self.clock.wall());
        for seat in self.seats.borrow().iter() {
            let mut playhead = seat.playhead.borrow_mut();
            if seat.is_gone.get() {
                figures.look_at_gone(playhead.account());
                continue;
            }
            playhead.advance(now - seat.joined);
            let latency = seat
                .began
                .get()
                .filter(|_| playhead.state() == State::Playing)
                .map(|began| wall.saturating_sub(began.saturating_add(playhead.position())));
            figures.look(playhead.state(), playhead.account(), latency);
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
        let media_of = |target: &str| parsed.get(target).and_then(|known| known.media.as_deref());
        let known = media_of(target).or_else(|| {
            let (presentation, _) = before?;
            presentation.periods[0].tracks.iter().find_map(|track| media_of(&track.name))
        });
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
