//! A live source: it pushes a presentation to an origin in a loop, in real time.
//!
//! It is a source like any other and comes through the same door: HTTP ingest of CMAF, interface 1 of DASH-IF
//! Live Media Ingest, one long PUT for each track. Real time is its work, so it is the one part of Thalweg
//! that acts by the clock.
//!
//! [`media`] reads the tracks, [`timeline`] says which chunk is due when, over the loop, [`retime`] gives a
//! chunk its times, [`push`] sends.

mod media;
mod push;
mod retime;
mod timeline;

use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::shutdown::Shutdown;
use media::Track;
use timeline::{Clock, Timeline};

pub(crate) use media::Error;

/// A presentation that is ready to be pushed.
#[derive(Debug)]
pub(crate) struct Source {
    tracks: Vec<Track>,
    timeline: Timeline,
}

impl Source {
    /// Reads every track of the directory once, to its end.
    ///
    /// # Errors
    /// Names the file, and the offset and box where one is at fault.
    pub(crate) fn load(directory: &Path) -> Result<Self, Error> {
        let tracks = media::load(directory)?;
        let timeline = Timeline::of(tracks.iter().map(Track::table));
        Ok(Self { tracks, timeline })
    }

    /// Pushes until `shutdown`, to `/ingest/CHANNEL` as `to` names it. Every track's upload is ended cleanly
    /// then.
    pub(crate) async fn run(self, to: hyper::Uri, shutdown: Shutdown) {
        let clock = Clock::start(self.timeline);
        let to = Arc::new(to);
        let mut uploads = JoinSet::new();
        for track in self.tracks {
            uploads.spawn(push::run(track, clock, Arc::clone(&to), shutdown.clone()));
        }
        uploads.join_all().await;
    }
}
