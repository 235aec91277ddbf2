//! State directory tests: consecutive runs, and damaged files.

use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicUsize;

use super::*;

/// A directory, not created yet, that is removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    /// Chooses a directory in a tmpfs.
    fn new() -> Self {
        Self::within(Path::new(SHARED_MEMORY))
    }

    /// Chooses a directory in the build directory, which is usually on a disk.
    fn on_disk() -> Self {
        Self::within(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp").as_path())
    }

    fn within(parent: &Path) -> Self {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("thalweg-state-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        fs::create_dir_all(parent).unwrap();
        Self(parent.join(name))
    }

    /// Returns the page of a run whose file is a link.
    fn page(&self, epoch: u64) -> Option<PathBuf> {
        fs::read_link(file_of(&self.0, epoch)).ok()
    }

    /// Simulates a run that starts this many responses and crashes. Returns its epoch.
    fn start(&self, started: u64) -> u64 {
        let state = State::open(&self.0).unwrap();
        (0..started).for_each(|at| state.begin(at as usize % 3));
        assert_eq!(state.started(), started);
        state.epoch()
    }

    fn files(&self) -> usize {
        fs::read_dir(&self.0).unwrap().count()
    }

    /// Changes the counter file of a run.
    fn change(&self, epoch: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let path = file_of(&self.0, epoch);
        let mut content = fs::read(&path).unwrap();
        change(&mut content);
        fs::write(path, content).unwrap();
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::read_dir(&self.0).into_iter().flatten().for_each(|entry| remove(&entry.unwrap().path()));
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn run_knows_counts_of_earlier_runs() {
    let scratch = Scratch::new();
    let epochs = [7, 2, 1000].map(|started| scratch.start(started));
    let state = State::open(&scratch.0).unwrap();
    let all =
        [(epochs[0], 7), (epochs[1], 2), (epochs[2], 1000)].map(|(epoch, total)| EndedRun { epoch, total });
    for first in 0..3 {
        assert_eq!(state.ended_from(epochs[first]), &all[first..]);
    }
    assert_eq!(state.ended_from(state.epoch()), []);
    assert_eq!(state.ended_from(epochs[0] - 1), [], "the epoch belongs to another edge");
    assert_eq!(State::open_or_in_memory(None).unwrap().ended_from(0), []);
}

#[test]
fn page_on_disk_stays_in_shared_memory_until_run_ends() {
    let scratch = Scratch::on_disk();
    if is_in_memory(scratch.0.parent().unwrap()).unwrap() {
        return; // the whole build is in a tmpfs
    }
    let state = State::open(&scratch.0).unwrap();
    let killed = state.epoch();
    let page = scratch.page(killed).unwrap();
    assert!(page.starts_with(SHARED_MEMORY) && fs::metadata(&page).unwrap().mode() & 0o777 == 0o600);
    (0..5).for_each(|worker| state.begin(worker));
    drop(state);

    let state = State::open(&scratch.0).unwrap();
    let ended = state.epoch();
    assert_eq!(state.ended_from(killed), [EndedRun { epoch: killed, total: 5 }]);
    (0..7).for_each(|worker| state.begin(worker));
    let own = scratch.page(ended).unwrap();
    state.end();
    assert_eq!(
        (own.exists(), scratch.page(ended), state.started()),
        (false, None, 7),
        "the count must be a file in the directory"
    );
    assert_eq!(fs::metadata(file_of(&scratch.0, ended)).unwrap().mode() & 0o777, 0o600);

    // The machine reboots: shared memory is empty or contains other users' files.
    drop(state);
    fs::remove_file(page).unwrap();
    let state = State::open(&scratch.0).unwrap();
    assert_eq!(state.ended_from(killed), []);
    assert_eq!(state.ended_from(ended), [EndedRun { epoch: ended, total: 7 }]);
    assert_eq!((scratch.files(), scratch.page(killed)), (2, None));

    let left: Vec<_> = (0..ENDED_MAX + 2).map(|_| scratch_page(&scratch)).collect();
    drop(state);
    let _state = State::open(&scratch.0).unwrap();
    assert!(left.iter().all(|page| !page.exists()), "runs without responses leave no page");
}

/// Returns the page of a run that crashes before its first response. Ignores the directory's lock.
fn scratch_page(scratch: &Scratch) -> PathBuf {
    let epoch = epochs(&scratch.0).unwrap().last().unwrap() + 1;
    drop(create(&scratch.0, &fs::metadata(&scratch.0).unwrap(), epoch).unwrap());
    scratch.page(epoch).unwrap()
}

#[test]
fn directory_writable_by_others_is_refused() {
    let scratch = Scratch::new();
    scratch.start(1);
    fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o770)).unwrap();
    assert_eq!(State::open(&scratch.0).unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn pipe_is_not_a_counter_file() {
    let scratch = Scratch::new();
    scratch.start(1);
    let pipe = file_of(&scratch.0, 5);
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let state = State::open(&scratch.0).unwrap();
    assert_eq!((state.ended_from(5), pipe.exists()), (&[][..], false));
}

#[test]
fn run_without_counter_file_still_reads_earlier_runs() {
    let scratch = Scratch::new();
    let before = scratch.start(4);
    let taken = file_of(&scratch.0, u64::MAX);
    fs::create_dir(&taken).unwrap();
    let state = State::open(&scratch.0).unwrap();
    state.begin(0);
    assert_eq!((state.epoch(), state.started()), (u64::MAX, 1), "a directory blocks the counter file's name");
    assert_eq!(state.ended_from(before), [EndedRun { epoch: before, total: 4 }]);
}

#[test]
fn directory_and_files_are_private() {
    let scratch = Scratch::new();
    let epoch = scratch.start(1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&scratch.0), mode(&file_of(&scratch.0, epoch))), (0o700, 0o600));
}

#[test]
fn epochs_increase_even_if_clock_is_set_back() {
    let scratch = Scratch::new();
    let ahead = scratch.start(3) + 3_600_000_000;
    let state = State::open(&scratch.0).unwrap();
    fs::write(file_of(&scratch.0, ahead), header(ahead).concat()).unwrap();
    drop(state);
    assert_eq!(scratch.start(0), ahead + 1);
    assert_eq!(scratch.start(0), ahead + 2);
}

#[test]
fn oldest_runs_are_dropped() {
    let scratch = Scratch::new();
    let epochs: Vec<_> = (0..ENDED_MAX as u64 + 3).map(|at| scratch.start(at + 1)).collect();
    assert_eq!(scratch.files(), ENDED_MAX + 1);
    // Runs without responses, for example failed starts, do not displace others.
    for _ in 0..ENDED_MAX {
        scratch.start(0);
    }
    let state = State::open(&scratch.0).unwrap();
    assert_eq!(scratch.files(), ENDED_MAX + 1);
    assert_eq!(state.ended_from(epochs[2]), []);
    let kept = state.ended_from(epochs[3]);
    assert_eq!((kept.len(), kept[0].total), (ENDED_MAX, 4));
}

#[test]
fn second_process_is_refused_until_first_ends() {
    let scratch = Scratch::new();
    let first = State::open(&scratch.0).unwrap();
    assert_eq!(State::open(&scratch.0).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let without = State::open_or_in_memory(Some(&scratch.0)).unwrap();
    without.begin(0);
    assert_eq!((scratch.files(), without.started(), first.started()), (1, 1, 0));
    first.begin(0);
    first.end();
    let second = State::open(&scratch.0).unwrap();
    assert_eq!(second.ended_from(first.epoch()), [EndedRun { epoch: first.epoch(), total: 1 }]);
}

#[test]
fn damaged_file_is_ignored_and_removed() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change); 5] = [
        ("nothing", |content| content.clear()),
        ("torn", |content| content.truncate(FILE_BYTES - 1)),
        ("lost with the power", |content| content.fill(0)),
        ("another version", |content| content[0] += 1),
        ("of another start", |content| content[8] ^= 1),
    ];
    for (what, change) in changes {
        let scratch = Scratch::new();
        let epochs = [1, 2, 3].map(|started| scratch.start(started));
        scratch.change(epochs[1], change);
        let state = State::open(&scratch.0).unwrap();
        let totals: Vec<_> = state.ended_from(epochs[0]).iter().map(|ended| ended.total).collect();
        assert_eq!(totals, [1, 3], "{what}");
        assert_eq!(state.ended_from(epochs[1]), [], "{what}");
        assert_eq!(scratch.files(), 3, "{what}: the file is removed");
    }
}

#[test]
fn other_files_are_left_alone() {
    let scratch = Scratch::new();
    scratch.start(1);
    for name in ["bundle.json", "x.begun", "begun", ".begun"] {
        fs::write(scratch.0.join(name), "mine").unwrap();
    }
    scratch.start(1);
    assert_eq!(scratch.files(), 6);
}
