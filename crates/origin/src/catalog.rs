//! `/catalog.json`: the playable presentations and channels, and an error for each presentation or
//! track that cannot be served.

use serde::Serialize;

use crate::live::Live;
use crate::vod::{Fault, Library, encode, join};

/// Maximum presentations indexed and listed in the catalogue; further ones are omitted.
const LISTED_MAX: usize = 1000;

/// The catalogue as a JSON document.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Catalog {
    vod: Vec<OnDemand>,
    live: Vec<Channel>,
    faults: Vec<Named>,
    warnings: Vec<Named>,
}

#[derive(Debug, Serialize)]
struct OnDemand {
    name: String,
    hls: String,
    dash: String,
    duration_s: f64,
}

#[derive(Debug, Serialize)]
struct Channel {
    name: String,
    hls: String,
    dash: String,
    /// Start of the channel: UTC in ISO 8601.
    since: String,
}

#[derive(Debug, Serialize)]
struct Named {
    name: String,
    /// The file concerned, if the rest of the presentation is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    message: String,
}

/// Builds the current catalogue. Presentations not yet indexed are indexed first.
pub(crate) async fn catalog(library: Option<&Library>, live: &Live) -> Catalog {
    let mut catalog = Catalog::default();
    if let Some(library) = library {
        on_demand(library, &mut catalog).await;
    }
    for (name, since) in live.published() {
        let (hls, dash) = urls("live", &name);
        catalog.live.push(Channel { hls, dash, since: since.to_string(), name });
    }
    catalog
}

async fn on_demand(library: &Library, catalog: &mut Catalog) {
    let all = library.storage().all_names().await;
    catalog.faults.extend(all.faults.iter().map(|(location, error)| Named {
        name: String::from("media"),
        file: None,
        message: format!("{location}: {error}"),
    }));
    catalog.warnings.extend(all.duplicates.into_iter().map(|(name, location)| Named {
        name,
        file: None,
        message: format!("not served from {location}: an earlier library has a presentation of this name"),
    }));
    for name in all.names.into_iter().take(LISTED_MAX) {
        match library.get(&name).await {
            Ok(presentation) => {
                catalog.warnings.extend(presentation.media.warnings().iter().map(|warning| Named {
                    name: name.clone(),
                    file: Some(warning.file().to_owned()),
                    message: warning.to_string(),
                }));
                let duration_s = presentation.media.duration_us() as f64 / 1e6;
                let (hls, dash) = urls("vod", &name);
                catalog.faults.extend(presentation.faults.iter().map(|fault| Named {
                    name: name.clone(),
                    file: fault.file().map(str::to_owned),
                    message: fault.to_string(),
                }));
                catalog.vod.push(OnDemand { name, hls, dash, duration_s });
            }
            Err(fault @ (Fault::NoTracks { .. } | Fault::Unknown)) => {
                joined(library, name, &fault, catalog).await;
            }
            Err(fault) => catalog.faults.push(Named { name, file: None, message: fault.to_string() }),
        }
    }
}

/// Lists a presentation that joins others, if the directory has a playlist file.
async fn joined(library: &Library, name: String, no_tracks: &Fault, catalog: &mut Catalog) {
    let fault =
        |file: Option<&str>, message| Named { name: name.clone(), file: file.map(str::to_owned), message };
    let playlist = match join::load(library, &name).await {
        Ok(Some(playlist)) => playlist,
        // The presentation was removed after the listing.
        Ok(None) if *no_tracks == Fault::Unknown => return,
        Ok(None) => return catalog.faults.push(fault(None, no_tracks.to_string())),
        Err(error) => return catalog.faults.push(fault(None, error.to_string())),
    };
    let joined = match playlist.joined() {
        Ok(joined) => joined,
        Err(error) => return catalog.faults.push(fault(None, error.to_string())),
    };
    if let Err(unmatched) = joined.ladder() {
        let message = playlist.unmatched(&unmatched).to_string();
        catalog.faults.push(fault(Some(playlist.file()), message));
    }
    let duration_s = joined.duration_us() as f64 / 1e6;
    let (hls, dash) = urls("vod", &name);
    catalog.vod.push(OnDemand { name, hls, dash, duration_s });
}

fn urls(root: &str, name: &str) -> (String, String) {
    let name = encode(name);
    (format!("/{root}/{name}/master.m3u8"), format!("/{root}/{name}/manifest.mpd"))
}

#[cfg(test)]
mod tests {
    use super::urls;

    #[test]
    fn names_are_encoded() {
        assert_eq!(urls("vod", "a b/é").0, "/vod/a%20b%2F%C3%A9/master.m3u8");
    }
}
