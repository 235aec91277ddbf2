//! Leftovers that a finished emulation must not leave on the system.

use std::fs;
use std::path::Path;

/// Lists the markers, mounts and devices that should have been removed after a run.
pub(crate) fn left() -> Vec<String> {
    let mut left = Vec::new();
    // Ignore the markers of other active runs.
    let is_others = |note: fs::DirEntry| {
        let name = note.file_name().into_string().unwrap();
        name != std::process::id().to_string() && Path::new("/proc").join(name).exists()
    };
    let notes = fs::read_dir("/run/thalweg-lab");
    if notes.is_ok_and(|mut notes| !notes.any(|note| note.is_ok_and(is_others))) {
        left.push("/run/thalweg-lab".to_owned());
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    left.extend(
        mounts
            .lines()
            .filter(|line| line.contains("ns-left-") || line.contains("/tmp/rattan"))
            .map(str::to_owned),
    );
    let devices = fs::read_to_string("/proc/self/net/dev").unwrap();
    left.extend(devices.lines().filter(|line| line.trim_start().starts_with("vL")).map(str::to_owned));
    left
}
