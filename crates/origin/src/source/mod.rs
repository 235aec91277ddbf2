//! A live source: pushes a presentation to an origin in a loop, in real time.
//!
//! Like any other source, it uses DASH-IF Live Media Ingest interface 1: CMAF over HTTP, with one
//! long PUT per track. It paces itself by the wall clock, so it reads the clock directly rather
//! than through [`clock`](crate::clock).
//!
//! [`media`] reads the tracks, [`timeline`] schedules chunks over the loop, [`retime`] rewrites a
//! chunk's times, and [`push`] sends the uploads.

mod media;
mod push;
mod retime;
mod timeline;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::live::ingest::permit::IngestToken;
use media::Track;
use timeline::{Clock, Timeline};

pub use media::SourceError;

/// The destination of a source.
#[derive(Debug)]
pub struct PublishingPoint {
    /// `http://HOST[:PORT]/ingest/CHANNEL`.
    pub uri: hyper::Uri,
    /// The origin's ingest token.
    pub token: Option<IngestToken>,
}

/// A presentation ready to be pushed.
#[derive(Debug)]
pub struct Source {
    tracks: Vec<Track>,
    timeline: Timeline,
}

impl Source {
    /// Reads every track in the directory.
    ///
    /// # Errors
    ///
    /// Returns an error that names the invalid file, with offset and box if known.
    pub fn load(directory: &Path) -> Result<Self, SourceError> {
        let tracks = media::load(directory)?;
        let timeline = Timeline::of(tracks.iter().map(Track::table));
        Ok(Self { tracks, timeline })
    }

    /// Pushes until `stop` resolves, then ends every track's upload cleanly.
    pub async fn run(self, to: PublishingPoint, stop: impl Future<Output = ()>) {
        let clock = Clock::start(self.timeline);
        let to = Arc::new(to);
        let (running, stopped) = watch::channel(());
        let mut uploads = JoinSet::new();
        for track in self.tracks {
            uploads.spawn(push::run(track, clock, to.clone(), Stop(stopped.clone())));
        }
        stop.await;
        drop(running);
        uploads.join_all().await;
    }
}

/// The stop signal of all uploads.
#[derive(Debug, Clone)]
struct Stop(watch::Receiver<()>);

impl Stop {
    /// Resolves when uploads should end. The sender signals this by being dropped and never sends a
    /// value.
    async fn requested(&mut self) {
        let _ = self.0.changed().await;
    }
}
