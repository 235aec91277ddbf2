//! Cleanup after killed runs: removes mount points, and kills processes that still see a run's
//! mounts and so keep its network namespaces alive.
//!
//! Each run writes a marker file, named after its process id, with its start time and its
//! emulation's id. If that process has exited, the next run kills all processes that see namespaces
//! with that id, and the namespaces disappear with those processes. Markers do not identify
//! namespaces by inode number, because the kernel reuses a number as soon as it is free.
//!
//! **Invariant:** directories created by runs are removed with the last marker, never earlier,
//! because removing a directory would also remove other runs' mounts on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::namespace::PLACES;

/// Directory of the markers.
const NOTES: &str = "/run/thalweg-lab";
/// File that lists the directories created by runs, one per line.
const CREATED: &str = "/run/thalweg-lab/made";

/// The marker of this run, removed on drop.
#[derive(Debug)]
pub(super) struct Note(PathBuf);

impl Note {
    /// Writes a marker for this process, whose emulation has no id yet.
    pub(super) fn write() -> io::Result<Self> {
        let _locked = lock()?;
        fs::create_dir_all(NOTES)?;
        let note = Self(Path::new(NOTES).join(process::id().to_string()));
        note.set_emulation("")?;
        Ok(note)
    }

    /// Records that the emulation `id` belongs to this process.
    pub(super) fn set_emulation(&self, id: &str) -> io::Result<()> {
        // Replace the file atomically, because another run may read it at any time.
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{}\n{id}\n", started(process::id()).unwrap_or_default()))?;
        fs::rename(&new, &self.0)
    }

    /// Returns the path of the marker.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes a marker and, with the last marker, the directories created by runs. This process must
/// already have unmounted them.
pub(super) fn remove(note: &Path) {
    let _locked = lock();
    let _ = fs::remove_file(note);
    let Ok(mut notes) = fs::read_dir(NOTES) else { return };
    if notes.any(|note| note.is_ok_and(|note| note.path() != Path::new(CREATED))) {
        return;
    }
    let created = fs::read_to_string(CREATED).unwrap_or_default();
    for place in PLACES.iter().filter(|place| created.lines().any(|line| line == **place)) {
        let _ = fs::remove_dir(place); // fails if other programs have put files there
    }
    let _ = fs::remove_file(CREATED);
    let _ = fs::remove_dir(NOTES);
}

/// Creates a directory and records that a run created it, unless it exists. This run must already
/// have a marker.
pub(super) fn create_directory(place: &str) -> io::Result<()> {
    let _locked = lock()?;
    if Path::new(place).exists() {
        return Ok(());
    }
    writeln!(OpenOptions::new().create(true).append(true).open(CREATED)?, "{place}")?;
    fs::create_dir_all(place)
}

/// Locks the markers against other runs while the returned file is open. The lock is on `/run`
/// itself, which is never removed.
fn lock() -> io::Result<File> {
    let run = File::open("/run")?;
    run.lock()?;
    Ok(run)
}

/// Kills processes left behind by killed runs and returns their number.
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
        // The same process id with a different start time is a different process.
        if started(pid).as_deref() == lines.next() {
            continue;
        }
        if let Some(id) = lines.next().filter(|id| !id.is_empty()) {
            ended += end_within(id);
            super::uplink::remove(id);
        }
        let _ = fs::remove_file(note.path());
    }
    ended
}

/// Kills all other processes that see the mounts of emulation `id` and returns their number.
pub(super) fn end_within(id: &str) -> usize {
    let Ok(processes) = fs::read_dir("/proc") else { return 0 };
    let name = format!("/{} ", super::namespace::clients_name(id));
    let mut ended = 0;
    for process in processes.flatten() {
        let pid =
            process.file_name().to_str().and_then(|name| name.parse::<i32>().ok()).and_then(Pid::from_raw);
        let mounts = fs::read_to_string(process.path().join("mountinfo"));
        if let (Some(pid), Ok(mounts)) = (pid, mounts)
            && pid != getpid()
            && mounts.contains(&name)
            && kill_process(pid, Signal::KILL).is_ok()
        {
            ended += 1;
        }
    }
    ended
}

/// Returns the start time of a process in ticks since boot, which is field 22 of `/proc/PID/stat`
/// (proc(5)). Parsing starts after the process name, which may contain any character.
fn started(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}
