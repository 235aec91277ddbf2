//! What a player says of itself: CMCD (CTA-5004) as request fields, each key in the field that §3.2 gives it.

/// What is said of one request.
#[derive(Debug, Clone, Copy)]
pub struct Cmcd<'a> {
    /// `sid`: the playback session.
    pub session: &'a str,
    /// `cid`: the content.
    pub content: &'a str,
    /// `ot`: what kind of object is asked for.
    pub object: ObjectType,
    /// `br`: the encoded bitrate, in kbit/s.
    pub bitrate_kbit_per_s: Option<u64>,
}

/// The kinds of objects that a path tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectType {
    /// An MPD or a playlist.
    Manifest,
    /// Audio alone.
    Audio,
    /// Video alone.
    Video,
    /// Audio and video together.
    Muxed,
    /// A CMAF header.
    Init,
    /// Captions.
    Text,
    /// Anything else.
    Other,
}

impl ObjectType {
    /// The token of CTA-5004.
    pub fn token(self) -> &'static str {
        match self {
            ObjectType::Manifest => "m",
            ObjectType::Audio => "a",
            ObjectType::Video => "v",
            ObjectType::Muxed => "av",
            ObjectType::Init => "i",
            ObjectType::Text => "tt",
            ObjectType::Other => "o",
        }
    }

    /// By the end of the path's last segment.
    pub fn of(target: &str) -> Self {
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let file = path.rsplit_once('/').map_or(path, |(_, file)| file);
        match file.rsplit_once('.') {
            Some((_, "m3u8" | "mpd")) => ObjectType::Manifest,
            Some((name, "mp4" | "m4s" | "cmfv")) if name.starts_with("init") => ObjectType::Init,
            Some((_, "m4s" | "m4v" | "cmfv")) => ObjectType::Video,
            Some((_, "m4a" | "cmfa" | "aac")) => ObjectType::Audio,
            Some((_, "mp4" | "ts")) => ObjectType::Muxed,
            Some((_, "vtt" | "ttml" | "cmft")) => ObjectType::Text,
            _ => ObjectType::Other,
        }
    }
}

impl Cmcd<'_> {
    /// The field lines, each with its end.
    pub fn fields(&self) -> String {
        let bitrate =
            self.bitrate_kbit_per_s.map_or_else(String::new, |kbit_per_s| format!("br={kbit_per_s},"));
        format!(
            "CMCD-Object: {bitrate}ot={}\r\nCMCD-Session: cid=\"{}\",sid=\"{}\"\r\n",
            self.object.token(),
            quoted(self.content),
            quoted(self.session)
        )
    }
}

/// The inside of a quoted string (RFC 8941 §3.3.3).
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn fields() {
        let object = ObjectType::of("/live/a/video/7.m4s?x=.mpd");
        let cmcd = Cmcd { session: "5f", content: "a\"\\", object, bitrate_kbit_per_s: Some(3000) };
        expect![[r#"
            CMCD-Object: br=3000,ot=v
            CMCD-Session: cid="a\"\\",sid="5f"
        "#]]
        .assert_eq(&cmcd.fields().replace("\r\n", "\n"));
    }

    #[test]
    fn kinds_of_objects() {
        let kinds = ["/a/master.m3u8", "/init.mp4", "/a.m4a", "/a.mp4", "/a.vtt", "/a", "/a.b/c"]
            .map(|path| ObjectType::of(path).token());
        assert_eq!(kinds, ["m", "i", "a", "av", "tt", "o", "o"]);
    }
}
