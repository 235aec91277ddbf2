//! What a run leaves behind that was killed: processes in its network namespaces, which keep those alive.
//!
//! Each run notes its own process and the numbers of its namespaces. The next one ends what is still in the namespaces of a run
//! whose process is gone; the namespaces go with it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::{Pid, Signal, kill_process};

/// Where runs are noted.
const NOTES: &str = "/run/thalweg-lab";

/// The note of this run, which goes with it.
#[derive(Debug)]
pub(super) struct Note(PathBuf);

impl Note {
    /// Notes that `namespaces`, by number, are this process's.
    pub(super) fn write(namespaces: &[u64]) -> io::Result<Self> {
        fs::create_dir_all(NOTES)?;
        let own = process::id();
        let path = Path::new(NOTES).join(own.to_string());
        let numbers: Vec<_> = namespaces.iter().map(u64::to_string).collect();
        fs::write(&path, format!("{}\n{}\n", started(own).unwrap_or_default(), numbers.join(" ")))?;
        Ok(Self(path))
    }
}

impl Note {
    /// Its file.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a note.
pub(super) fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(NOTES); // if it was the last
}

/// Ends what killed runs have left, and says how many processes that were.
pub(super) fn clear() -> usize {
    let Ok(notes) = fs::read_dir(NOTES) else { return 0 };
    let mut ended = 0;
    for note in notes.flatten() {
        let (Some(pid), Ok(text)) = (
            note.file_name().to_str().and_then(|name| name.parse::<u32>().ok()),
            fs::read_to_string(note.path()),
        ) else {
            continue;
        };
        let mut lines = text.lines();
        // A process of that number that started at another time is another.
        if started(pid).as_deref() == lines.next() {
            continue;
        }
        let namespaces: Vec<u64> =
            lines.next().unwrap_or_default().split(' ').filter_map(|number| number.parse().ok()).collect();
        ended += end_within(&namespaces);
        let _ = fs::remove_file(note.path());
    }
    ended
}

/// Ends all processes in these network namespaces, and says how many.
pub(super) fn end_within(namespaces: &[u64]) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let mut ended = 0;
    for process in processes.flatten() {
        let pid =
            process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()).and_then(Pid::from_raw);
        // Through the link to the namespace itself.
        let namespace = fs::metadata(process.path().join("ns/net")).map(|of| of.ino());
        if let (Some(pid), Ok(namespace)) = (pid, namespace)
            && namespaces.contains(&namespace)
            && kill_process(pid, Signal::KILL).is_ok()
        {
            ended += 1;
        }
    }
    ended
}

/// When a process started, in ticks since the system did: field 22 of `/proc/PID/stat` (proc(5)), behind the name, which may
/// hold anything.
fn started(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}
