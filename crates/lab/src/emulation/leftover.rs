//! What a run leaves behind that was killed: processes that see its mounts, which keep its network namespaces alive, and the
//! directories that these were mounted on.
//!
//! Each run notes its own process and the name of its emulation. The next one ends what still sees the namespaces of that name,
//! where the run's process is gone; the namespaces go with it. A name and not the namespaces' numbers: the kernel gives a number
//! to another namespace as soon as it is free.
//!
//! **Invariant:** directories that runs have made are removed with the last note, never before: to remove one takes away what
//! others have mounted on it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::{Pid, Signal, getpid, kill_process};

use super::namespace::PLACES;

/// Where runs are noted.
const NOTES: &str = "/run/thalweg-lab";
/// Where directories are noted, one on each line.
const MADE: &str = "/run/thalweg-lab/made";

/// The note of this run, which goes with it.
#[derive(Debug)]
pub(super) struct Note(PathBuf);

impl Note {
    /// Notes this process, whose emulation has no name yet.
    pub(super) fn write() -> io::Result<Self> {
        let _locked = lock()?;
        fs::create_dir_all(NOTES)?;
        let note = Self(Path::new(NOTES).join(process::id().to_string()));
        note.name("")?;
        Ok(note)
    }

    /// Notes that the emulation `id` is this process's.
    pub(super) fn name(&self, id: &str) -> io::Result<()> {
        // Under its name it is whole: another run may look at any time.
        let new = self.0.with_extension("new");
        fs::write(&new, format!("{}\n{id}\n", started(process::id()).unwrap_or_default()))?;
        fs::rename(&new, &self.0)
    }

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

/// Removes a note, and with the last one the directories. What is mounted there by this process has to be gone.
pub(super) fn remove(note: &Path) {
    let _locked = lock();
    let _ = fs::remove_file(note);
    let Ok(mut notes) = fs::read_dir(NOTES) else { return };
    if notes.any(|note| note.is_ok_and(|note| note.path() != Path::new(MADE))) {
        return;
    }
    let made = fs::read_to_string(MADE).unwrap_or_default();
    for place in PLACES.iter().filter(|place| made.lines().any(|line| line == **place)) {
        let _ = fs::remove_dir(place); // unless others have something in it by now
    }
    let _ = fs::remove_file(MADE);
    let _ = fs::remove_dir(NOTES);
}

/// Makes a directory, and notes that, unless it is there. This run is noted already.
pub(super) fn make(place: &str) -> io::Result<()> {
    let _locked = lock()?;
    if Path::new(place).exists() {
        return Ok(());
    }
    writeln!(OpenOptions::new().create(true).append(true).open(MADE)?, "{place}")?;
    fs::create_dir_all(place)
}

/// Lets no other run at the notes while the file is open; locked is `/run` itself, which nobody has to remove.
fn lock() -> io::Result<File> {
    let run = File::open("/run")?;
    run.lock()?;
    Ok(run)
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
        if let Some(id) = lines.next().filter(|id| !id.is_empty()) {
            ended += end_within(id);
        }
        let _ = fs::remove_file(note.path());
    }
    ended
}

/// Ends all processes but this one that see the mounts of the emulation `id`, and says how many.
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

/// When a process started, in ticks since the system did: field 22 of `/proc/PID/stat` (proc(5)), behind the name, which may
/// hold anything.
fn started(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}
