//! Example commands printed by `thalweg up`, with the actual addresses of its roles.

use std::fmt::Write as _;
use std::net::SocketAddr;

use thalweg_cli::admin_args::ADMIN_DEFAULT;

/// Addresses of the roles, as a client on this machine reaches them.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    pub(crate) console: Option<SocketAddr>,
    pub(crate) edge: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) origin: Option<SocketAddr>,
    pub(crate) ingest: Option<SocketAddr>,
    /// Name of a presentation served by the origin.
    pub(crate) presentation: Option<String>,
    /// Names of the live channels.
    pub(crate) channels: Vec<String>,
}

/// Returns the commands under their headings, or an empty string if no role has a command.
pub(crate) fn text(addresses: &Addresses) -> String {
    let mut text = String::new();
    if let Some(console) = addresses.console {
        section(&mut text, "Console", &[format!("http://{console}/")]);
    }
    if let Some(server) = addresses.edge.or(addresses.origin) {
        section(&mut text, "Play", &play_commands(server, addresses));
        section(&mut text, "Inspect a response", &inspection_commands(server, addresses));
    }
    if let Some(admin) = addresses.admin {
        let admin = admin.to_string();
        let flag = if admin == ADMIN_DEFAULT { String::new() } else { format!(" --admin {admin}") };
        section(&mut text, "Follow the requests", &[format!("thalweg log{flag}")]);
    }
    if let Some(ingest) = addresses.ingest {
        section(&mut text, "Push a channel of your own", &[push(ingest)]);
    }
    text
}

fn section(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    writeln!(text, "\n{title}").expect("writing to a String cannot fail");
    for line in lines {
        writeln!(text, "  {line}").expect("writing to a String cannot fail");
    }
}

fn play_commands(server: SocketAddr, addresses: &Addresses) -> Vec<String> {
    let presentation =
        addresses.presentation.as_ref().map(|name| format!("ffplay http://{server}/vod/{name}/master.m3u8"));
    let channel =
        addresses.channels.first().map(|name| format!("ffplay http://{server}/live/{name}/manifest.mpd"));
    presentation.into_iter().chain(channel).collect()
}

fn inspection_commands(server: SocketAddr, addresses: &Addresses) -> Vec<String> {
    let presentation = addresses.presentation.as_ref().map(|name| format!("vod/{name}/manifest.mpd"));
    let channel = addresses.channels.first().map(|name| format!("live/{name}/master.m3u8"));
    presentation.or(channel).map(|path| format!("curl -i http://{server}/{path}")).into_iter().collect()
}

/// Returns an ffmpeg command (version 4.3 or later) that pushes a test picture and a tone as a
/// low-latency channel.
fn push(ingest: SocketAddr) -> String {
    format!(
        "ffmpeg -re -f lavfi -i testsrc2=size=640x360:rate=24 -re -f lavfi -i sine=440:sample_rate=48000 \\\n    \
         -map 0:v -map 1:a -c:v libx264 -preset veryfast -tune zerolatency -g 48 -pix_fmt yuv420p -c:a aac \\\n    \
         -f dash -ldash 1 -streaming 1 -use_template 1 -use_timeline 0 -seg_duration 2 \\\n    \
         -frag_type duration -frag_duration 0.5 -format_options movflags=cmaf \\\n    \
         -method PUT http://{ingest}/ingest/mine/live.mpd"
    )
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn every_role_adds_its_command() {
        let at = |port| Some(([127, 0, 0, 1], port).into());
        let all = Addresses {
            console: at(8000),
            edge: at(8080),
            admin: at(9082),
            origin: at(8081),
            ingest: at(8084),
            presentation: Some("sample".to_owned()),
            channels: vec!["demo".to_owned()],
        };
        expect![[r#"

            Console
              http://127.0.0.1:8000/

            Play
              ffplay http://127.0.0.1:8080/vod/sample/master.m3u8
              ffplay http://127.0.0.1:8080/live/demo/manifest.mpd

            Inspect a response
              curl -i http://127.0.0.1:8080/vod/sample/manifest.mpd

            Follow the requests
              thalweg log --admin 127.0.0.1:9082

            Push a channel of your own
              ffmpeg -re -f lavfi -i testsrc2=size=640x360:rate=24 -re -f lavfi -i sine=440:sample_rate=48000 \
                -map 0:v -map 1:a -c:v libx264 -preset veryfast -tune zerolatency -g 48 -pix_fmt yuv420p -c:a aac \
                -f dash -ldash 1 -streaming 1 -use_template 1 -use_timeline 0 -seg_duration 2 \
                -frag_type duration -frag_duration 0.5 -format_options movflags=cmaf \
                -method PUT http://127.0.0.1:8084/ingest/mine/live.mpd
        "#]].assert_eq(&text(&all));
        let edge_only = Addresses { edge: at(8080), admin: at(8082), ..Addresses::default() };
        expect![[r#"

            Follow the requests
              thalweg log
        "#]]
        .assert_eq(&text(&edge_only));
        assert_eq!(text(&Addresses::default()), "");
    }
}
