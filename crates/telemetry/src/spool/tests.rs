//! Spool tests: reading after restarts, with torn and damaged files, at the size limit, and on a
//! full disk.

use std::os::unix::fs::FileExt;
use std::process::Command;

use thalweg_record::{LossRecord, Stage};

use super::mark::MARK;
use super::*;
use crate::testing::{Dir, Random, open_spool};

const NOW: u64 = 1_800_000_000_000_000;

impl Dir {
    fn open(&self) -> Arc<Spool> {
        self.open_of(64 << 20)
    }

    fn open_of(&self, total_bytes: u64) -> Arc<Spool> {
        open_spool(&self.0, total_bytes)
    }

    fn last_segment(&self) -> PathBuf {
        let mut paths: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "segment"));
        paths.sort();
        paths.pop().unwrap()
    }
}

/// Creates a record identified by `mark` that compresses as poorly as real samples.
fn record(mark: u64) -> (Network, Record) {
    let records = mark.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (Network::default(), Record::Loss(LossRecord { time_unix_us: mark, stage: Stage::Edge, records }))
}

fn append(spool: &Spool, marks: Range<u64>) -> Appended {
    spool.append(marks.map(record).collect(), NOW)
}

fn entries(batch: &thalweg_record::Batch) -> Vec<(u64, u64)> {
    let mark = |record: &Record| match record {
        Record::Loss(loss) => loss.time_unix_us,
        _ => panic!("expected only loss records"),
    };
    batch.entries.iter().map(|entry| (entry.number, mark(&entry.record))).collect()
}

/// Reads all records from a closed spool and marks them as done. Returns their numbers and marks.
fn drain(reader: &mut Reader) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Some(batch) = reader.next_batch() {
        all.extend(entries(&batch));
        reader.done(all.last().unwrap().0 + 1);
    }
    all
}

fn close(spool: &Spool) {
    spool.close(Duration::from_secs(3600));
}

fn same(range: Range<u64>) -> Vec<(u64, u64)> {
    range.map(|number| (number, number)).collect()
}

#[test]
fn records_are_read_in_order_across_restarts() {
    let dir = Dir::absent("spool-order");
    let epoch = {
        let spool = dir.open();
        let mut reader = spool.reader("a").unwrap();
        assert_eq!(append(&spool, 0..3), Appended { numbers: 0..3, lost: 0 });
        assert_eq!(append(&spool, 3..10_000), Appended { numbers: 3..10_000, lost: 0 });
        assert_eq!(entries(&reader.next_batch().unwrap()), same(0..3));
        reader.done(3);
        let second = reader.next_batch().unwrap();
        assert_eq!(entries(&second), same(3..3 + frame::FRAME_RECORDS_MAX as u64));
        spool.source().epoch
    };
    let spool = dir.open();
    assert_eq!(spool.source().epoch, epoch);
    let mut reader = spool.reader("a").unwrap();
    let mut other = spool.reader("b").unwrap();
    assert_eq!(append(&spool, 10_000..10_001).numbers, 10_000..10_001);
    close(&spool);
    assert_eq!(drain(&mut reader), same(3..10_001));
    assert_eq!(drain(&mut other), same(0..10_001));
    assert_eq!((reader.lost(), other.lost()), (0, 0));
    assert_eq!(spool.lag(reader.position()).records, 0);
}

#[test]
fn appends_and_closing_wake_the_reader() {
    let dir = Dir::absent("spool-woken");
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    let thread = std::thread::spawn(move || drain(&mut reader));
    for mark in 0..100 {
        append(&spool, mark..mark + 1);
    }
    close(&spool);
    assert_eq!(thread.join().unwrap(), same(0..100));
}

#[test]
fn no_batch_is_returned_after_the_drain_deadline() {
    let dir = Dir::absent("spool-over");
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    append(&spool, 0..3);
    spool.close(Duration::ZERO);
    assert!(reader.next_batch().is_none());
    assert!(spool.is_over());
}

#[test]
fn sink_ahead_of_its_position_file_resumes_at_its_own_position() {
    let dir = Dir::absent("spool-resume");
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    append(&spool, 0..10);
    reader.resume(4);
    assert_eq!(entries(&reader.next_batch().unwrap()), same(4..10));
    reader.done(10);
    // The sink is ahead of the spool, so the numbers in between must not be assigned to other
    // records.
    reader.resume(50);
    assert_eq!(append(&spool, 50..52).numbers, 50..52);
    assert_eq!(entries(&reader.next_batch().unwrap()), same(50..52));
    assert_eq!(reader.lost(), 0);
}

#[test]
fn sink_behind_its_position_file_gets_records_again() {
    let dir = Dir::absent("spool-back");
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    append(&spool, 0..10);
    append(&spool, 10..20);
    reader.done(20);
    drop((reader, spool));
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    reader.resume(4);
    assert_eq!((reader.position(), spool.lag(reader.position()).records), (4, 16));
    assert_eq!(append(&spool, 20..21).numbers, 20..21);
    close(&spool);
    assert_eq!((drain(&mut reader), reader.lost()), (same(4..21), 0));
}

#[test]
fn records_lost_to_a_sink_that_goes_back_are_counted_once() {
    let dir = Dir::absent("spool-back-gone");
    let open = || dir.open_of(LIMIT_BYTES_MIN);
    let next = 200_000;
    let (kept, lost) = {
        let spool = open();
        let mut reader = spool.reader("a").unwrap();
        append(&spool, 0..1000);
        reader.next_batch().unwrap();
        for at in 1..next / 1000 {
            append(&spool, at * 1000..(at + 1) * 1000);
        }
        while reader.lost() == 0 {
            let first = reader.next_batch().unwrap().entries[0].number;
            reader.done(first);
        }
        (reader.position() - reader.lost(), reader.lost())
    };
    assert!(lost > 10_000, "{lost}");
    // The sink stores nothing further and reports the same position at each start.
    for _ in 0..3 {
        let spool = open();
        let mut reader = spool.reader("a").unwrap();
        reader.resume(kept);
        assert_eq!((reader.position(), reader.lost()), (kept + lost, lost));
    }
    // The sink is restored from an even older backup.
    let spool = open();
    let mut reader = spool.reader("a").unwrap();
    reader.resume(300);
    close(&spool);
    let rest = drain(&mut reader);
    assert_eq!(reader.lost(), kept - 300 + lost);
    assert_eq!(300 + reader.lost() + rest.len() as u64, next);
    assert_eq!(rest, same(next - rest.len() as u64..next));
}

#[test]
fn unassigned_numbers_are_not_counted_as_lost_when_a_sink_goes_back() {
    let dir = Dir::absent("spool-back-boot");
    let mut ends = Vec::new();
    for _ in 0..3 {
        let spool = dir.open();
        let mut reader = spool.reader("a").unwrap();
        let numbers = append(&spool, 0..1000).numbers;
        reader.done(numbers.end);
        ends.push(numbers.end);
        let mark = fs::read_to_string(dir.0.join("spool")).unwrap();
        drop((reader, spool));
        let boot = boot().unwrap();
        fs::write(dir.0.join("spool"), mark.replace(&boot, "another")).unwrap();
    }
    assert_eq!(ends, [1000, 2000 + UNSYNCED_RECORDS_MAX, 3000 + 2 * UNSYNCED_RECORDS_MAX]);
    // All spool segments but the last have been deleted.
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    reader.resume(300);
    assert_eq!(spool.gone(300), 700 + 1000);
    close(&spool);
    assert_eq!((drain(&mut reader).len() as u64, reader.lost()), (1000, 700 + 1000));
}

#[test]
fn spool_segments_that_a_sink_may_go_back_to_are_kept() {
    let dir = Dir::absent("spool-back-kept");
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let mut readers = ["quick", "slow"].map(|name| spool.reader(name).unwrap());
    for mark in 0..8 {
        append(&spool, mark * 1000..(mark + 1) * 1000);
    }
    assert!(spool.state().segments.len() > 1);
    readers[1].done(8000);
    drop((readers, spool));
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let [mut quick, mut slow] = ["quick", "slow"].map(|name| spool.reader(name).unwrap());
    close(&spool);
    assert_eq!(drain(&mut quick), same(0..8000));
    slow.resume(10);
    assert_eq!((drain(&mut slow), slow.lost()), (same(10..8000), 0));
    assert_eq!(
        spool.state().segments.len(),
        1,
        "all but the last must be deleted once both readers have finished"
    );
}

#[test]
fn directory_is_locked_by_one_process() {
    let dir = Dir::absent("spool-lock");
    let first = dir.open();
    let second = Spool::open(&dir.0, Limits { total_bytes: 64 << 20 }, "host", "pop").unwrap_err();
    assert!(second.to_string().contains("is used by another process"), "{second}");
    drop(first);
    dir.open();
}

#[test]
fn directory_of_a_newer_release_is_refused() {
    let dir = Dir::absent("spool-newer");
    drop(dir.open());
    fs::write(dir.0.join("spool"), "thalweg spool 2\nepoch 1\nboot x\n").unwrap();
    let error = Spool::open(&dir.0, Limits { total_bytes: 64 << 20 }, "host", "pop").unwrap_err();
    assert!(error.to_string().contains("spool format not supported by this release"), "{error}");
}

#[test]
fn torn_tail_of_any_length_is_truncated() {
    let dir = Dir::absent("spool-torn");
    let spool = dir.open();
    append(&spool, 0..5);
    let whole_bytes = fs::metadata(dir.last_segment()).unwrap().len();
    append(&spool, 5..8);
    drop(spool);
    let path = dir.last_segment();
    let content = fs::read(&path).unwrap();
    for length in whole_bytes as usize..content.len() {
        for newer in fs::read_dir(&dir.0).unwrap().map(|entry| entry.unwrap().path()) {
            let is_other = newer != path && newer.extension().is_some_and(|word| word == "segment");
            if is_other || newer.extension().is_some_and(|word| word == "position") {
                fs::remove_file(newer).unwrap();
            }
        }
        fs::write(&path, &content[..length]).unwrap();
        let spool = dir.open();
        let mut reader = spool.reader("a").unwrap();
        assert_eq!(append(&spool, 5..6).numbers, 5..6);
        close(&spool);
        assert_eq!((drain(&mut reader), reader.lost()), (same(0..6), 0), "cut to {length} bytes");
    }
}

#[test]
fn damaged_records_are_counted_and_their_numbers_not_reused() {
    let dir = Dir::absent("spool-damage");
    let spool = dir.open();
    append(&spool, 0..5);
    let at = fs::metadata(dir.last_segment()).unwrap().len() + frame::HEADER_BYTES as u64 + 2;
    append(&spool, 5..8);
    let flip = || {
        let file = fs::OpenOptions::new().read(true).write(true).open(dir.last_segment()).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    };
    // Damage while a reader is open: the rest of the segment must be skipped, and later records
    // must be read.
    flip();
    let mut reader = spool.reader("a").unwrap();
    assert_eq!(entries(&reader.next_batch().unwrap()), same(0..5));
    reader.done(5);
    append(&spool, 8..10);
    append(&spool, 10..12);
    close(&spool);
    let rest = drain(&mut reader);
    let read = rest.len() as u64;
    assert_eq!(read + reader.lost(), 7, "{rest:?}");
    assert_eq!(rest, same(12 - read..12));
    drop((reader, spool));
    // Damage before a start: sinks may have read the damaged records, so their numbers must not be
    // reused.
    let spool = dir.open();
    assert_eq!(append(&spool, 0..1).numbers.start, 5 + UNSYNCED_RECORDS_MAX);
}

#[test]
fn spool_segment_that_cannot_be_opened_is_kept() {
    let dir = Dir::absent("spool-stays");
    append(&dir.open(), 0..3);
    let (path, aside) = (dir.last_segment(), dir.0.join("aside"));
    fs::rename(&path, &aside).unwrap();
    std::os::unix::fs::symlink(&path, &path).unwrap();
    Spool::open(&dir.0, Limits { total_bytes: 64 << 20 }, "host", "pop").unwrap_err();
    fs::remove_file(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    close(&spool);
    assert_eq!(drain(&mut reader), same(0..3));
}

#[test]
fn numbers_of_a_last_spool_segment_without_a_header_are_not_reused() {
    let dir = Dir::absent("spool-header");
    append(&dir.open(), 0..3);
    append(&dir.open(), 3..5);
    fs::OpenOptions::new().write(true).open(dir.last_segment()).unwrap().write_all_at(b"no", 0).unwrap();
    assert_eq!(append(&dir.open(), 0..1).numbers.start, 3 + UNSYNCED_RECORDS_MAX);
}

#[test]
fn temporarily_unreadable_spool_segment_is_read_later() {
    let dir = Dir::absent("spool-later");
    let spool = dir.open();
    append(&spool, 0..3);
    let (path, aside) = (dir.last_segment(), dir.0.join("aside"));
    let mut reader = spool.reader("a").unwrap();
    fs::rename(&path, &aside).unwrap();
    fs::create_dir(&path).unwrap();
    spool.close(Duration::from_millis(20));
    assert!(reader.next_batch().is_none());
    assert_eq!(reader.lost(), 0);
    drop((reader, spool));
    fs::remove_dir(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    close(&spool);
    assert_eq!((drain(&mut reader), reader.lost()), (same(0..3), 0));
}

#[test]
fn sink_with_a_torn_position_file_starts_at_the_oldest_record() {
    let dir = Dir::absent("spool-note");
    append(&dir.open(), 0..3);
    for torn in ["", "2", "\0\0\0\0"] {
        fs::write(dir.0.join("a.position"), torn).unwrap();
        let spool = dir.open();
        let mut reader = spool.reader("a").unwrap();
        close(&spool);
        assert_eq!(drain(&mut reader), same(0..3));
    }
}

#[test]
fn reboot_skips_numbers_without_counting_losses() {
    let dir = Dir::absent("spool-boot");
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    append(&spool, 0..5);
    reader.done(2);
    let epoch = spool.source().epoch;
    drop((reader, spool));
    fs::write(dir.0.join("spool"), format!("{MARK}\nepoch {epoch}\nboot another\n")).unwrap();
    // A start that appends nothing must preserve the skip.
    drop(dir.open());
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    let next = 5 + UNSYNCED_RECORDS_MAX;
    assert_eq!(append(&spool, 5..6).numbers, next..next + 1);
    close(&spool);
    assert_eq!(drain(&mut reader), [(2, 2), (3, 3), (4, 4), (next, 5)]);
    assert_eq!(reader.lost(), 0);
}

#[test]
fn unassigned_numbers_are_not_counted_as_lost_for_a_new_sink() {
    let dir = Dir::absent("spool-unused");
    drop(dir.open());
    fs::write(dir.0.join("spool"), format!("{MARK}\nepoch 1\nboot another\n")).unwrap();
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    append(&spool, 0..3);
    close(&spool);
    assert_eq!((drain(&mut reader).len(), reader.lost()), (3, 0));
}

#[test]
fn limit_holds_and_each_sink_counts_unread_deletions() {
    let dir = Dir::absent("spool-bound");
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let mut slow = spool.reader("slow").unwrap();
    let mut fast = spool.reader("fast").unwrap();
    append(&spool, 0..10);
    let first = entries(&slow.next_batch().unwrap());
    let (mut kept, mut next) = (0, 10);
    while next < 400_000 {
        assert_eq!(append(&spool, next..next + 1000), Appended { numbers: next..next + 1000, lost: 0 });
        next += 1000;
        assert!(spool.total_bytes() <= LIMIT_BYTES_MIN);
        while spool.lag(fast.position()).records > 0 {
            let batch = fast.next_batch().unwrap();
            kept += batch.entries.len() as u64;
            fast.done(batch.entries.last().unwrap().number + 1);
        }
    }
    assert_eq!((kept, fast.lost()), (next, 0));
    assert!(spool.gone(10) > 100_000);
    assert_eq!(
        10 + spool.gone(10) + spool.lag(10).records,
        next,
        "losses must be counted before the sink reads on"
    );
    assert_eq!((spool.gone(next), spool.appended()), (0, next));
    drop((slow, fast, spool));
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let mut slow = spool.reader("slow").unwrap();
    let again = entries(&slow.next_batch().unwrap());
    assert_eq!(again, first, "the segment being read must be kept");
    slow.done(10);
    close(&spool);
    let rest = drain(&mut slow);
    assert!(slow.lost() > 100_000, "{}", slow.lost());
    assert_eq!(10 + rest.len() as u64 + slow.lost(), next);
    assert!(rest.iter().all(|(number, mark)| number == mark));
    drop((slow, spool));
    assert_eq!(dir.open_of(LIMIT_BYTES_MIN).reader("slow").unwrap().lost() + 10 + rest.len() as u64, next);
}

/// Creates a response too large for the smallest spool.
fn large() -> (Network, Record) {
    let random = &mut Random(1);
    let path = (0..2 << 20).map(|_| char::from(b' ' + random.below(64) as u8)).collect();
    let is_response = |record: &Record| matches!(record, Record::Response(_));
    let found = (0..).map(crate::testing::record).find(|(_, record)| is_response(record)).unwrap();
    let (network, Record::Response(mut response)) = found else { unreachable!() };
    Arc::make_mut(&mut response).path = path;
    (network, Record::Response(response))
}

#[test]
fn oversized_frame_evicts_nothing() {
    let dir = Dir::absent("spool-large");
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let large = vec![large()];
    assert_eq!(spool.append(large.clone(), NOW), Appended { numbers: 0..0, lost: 1 });
    for mark in 0..20 {
        append(&spool, mark * 1000..(mark + 1) * 1000);
    }
    let before = spool.lag(0);
    assert_eq!((spool.append(large, NOW).lost, spool.lag(0)), (1, before));
}

/// Creates an arrival that moves the edge's position to `next`.
fn heard_with(record: (Network, Record), next: u64) -> Arrival {
    let heard = EdgePosition { edge: "e".into(), epoch: 1, next };
    Arrival { heard: Some(heard), ..record.into() }
}

/// Returns the edge's stored position, read as after a crash.
fn heard(dir: &Dir) -> Option<u64> {
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    spool.edge_positions(&["e".into()])[0].as_ref().map(|heard| heard.next)
}

#[test]
fn edge_position_is_stored_with_its_records() {
    let dir = Dir::absent("spool-heard");
    assert_eq!(heard(&dir), None);
    let spool = dir.open();
    spool.append((0..5).map(|mark| heard_with(record(mark), mark + 1)).collect(), NOW);
    append(&spool, 5..6);
    drop(spool);
    assert_eq!(heard(&dir), Some(5), "a frame without the edge's responses must have its position too");
    dir.open().append(vec![heard_with(record(6), 9)], NOW);
    assert_eq!(heard(&dir), Some(9));
    let last = fs::OpenOptions::new().write(true).open(dir.last_segment()).unwrap();
    last.set_len(last.metadata().unwrap().len() - 1).unwrap();
    assert_eq!(heard(&dir), Some(5), "the position must not cover a lost response");

    // State after a crash between creating a spool segment and writing its first frame, with all
    // earlier segments fully read.
    segment::Segment::create(&dir.0, 6, 6).unwrap();
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    reader.done(6);
    drop((reader, spool));
    assert_eq!(heard(&dir), Some(5));
    let spool = dir.open();
    spool.edge_positions(&["other".into()]);
    append(&spool, 6..7);
    drop(spool);
    assert_eq!(heard(&dir), None, "the position of an edge no longer followed must be dropped");
}

#[test]
fn edge_position_of_lost_records_is_stored_with_the_loss_record() {
    let dir = Dir::absent("spool-heard-lost");
    dir.open_of(LIMIT_BYTES_MIN).append(vec![heard_with(large(), 7)], NOW);
    assert_eq!(heard(&dir), None, "neither record nor position may be written");
    let spool = dir.open_of(LIMIT_BYTES_MIN);
    let mut reader = spool.reader("a").unwrap();
    spool.append(vec![heard_with(large(), 7)], NOW);
    append(&spool, 0..1);
    let batch = reader.next_batch().unwrap();
    let Record::Loss(loss) = &batch.entries[0].record else { panic!("{batch:?}") };
    assert_eq!((loss.stage, loss.records, batch.entries.len()), (Stage::Spool, 1, 2));
    drop((reader, spool));
    assert_eq!(heard(&dir), Some(7));
}

#[test]
fn saved_socket_totals_are_advanced_by_later_records_in_the_same_boot() {
    let dir = Dir::absent("spool-sockets");
    let socket = |number: u64| {
        let mut socket = (number..).map(crate::testing::record).find_map(|(network, record)| match record {
            Record::Socket(socket) => Some((network, socket)),
            _ => None,
        });
        let (network, socket) = socket.as_mut().unwrap();
        let counters = thalweg_record::Counters { bytes_acked: 10, ..Default::default() };
        (socket.cookie, socket.cause, socket.counters) = (7, thalweg_record::Cause::Dump, Some(counters));
        (network.clone(), Record::Socket(socket.clone()))
    };
    let known = |dir: &Dir| {
        let saved = dir.open().saved_sockets()?;
        Some(saved.totals(7).map(|totals| totals.bytes_acked))
    };
    let spool = dir.open();
    assert!(spool.saved_sockets().is_none());
    let mut reader = spool.reader("a").unwrap();
    spool.append(vec![socket(0), socket(1)], NOW);
    spool.save_sockets(&Saved::begin(1, NOW, 0));
    spool.append(vec![socket(2), socket(3)], NOW);
    spool.append(vec![socket(4)], NOW);
    reader.done(5);
    drop((reader, spool));
    assert_eq!(known(&dir), Some(Some(30)), "records since the save must be added");
    assert_eq!(known(&dir), Some(Some(30)));

    let file = dir.0.join("sockets");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(known(&dir), None, "the file is torn");
    let (mut of_another_boot, passed) = (whole.clone(), whole.len() - 8);
    of_another_boot[10] ^= 1;
    let checksum = twox_hash::XxHash3_64::oneshot(&of_another_boot[..passed]);
    of_another_boot[passed..].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&file, of_another_boot).unwrap();
    assert_eq!(known(&dir), None, "the file is from another boot");
    fs::write(&file, whole).unwrap();
    assert_eq!(known(&dir), Some(Some(30)));
    fs::remove_file(dir.last_segment()).unwrap();
    assert_eq!(known(&dir), None, "records since the save are gone");
}

/// Child process of [`full_disk_is_logged_and_counted`], in which files cannot exceed 64 KiB.
/// Appends records and checks the counts.
#[test]
fn child_of_a_small_disk() {
    let Some(dir) = std::env::var_os("THALWEG_SMALL_DISK") else { return };
    let dir = Dir(dir.into());
    let spool = dir.open();
    let mut reader = spool.reader("a").unwrap();
    // The first frame after the unassigned numbers is too large to be written.
    let (mut lost, mut sent) = (append(&spool, 0..10_000).lost, 5 + 10_000);
    assert_eq!(lost, frame::FRAME_RECORDS_MAX as u64);
    for mark in 10.. {
        let appended = append(&spool, mark * 1000..(mark + 1) * 1000);
        lost += appended.lost;
        sent += 1000;
        if mark > 100 && appended.lost > 0 {
            break;
        }
    }
    assert!(spool.writer().lost() > 0);
    close(&spool);
    let (mut kept, mut reported) = (0, 0);
    while let Some(batch) = reader.next_batch() {
        for entry in &batch.entries {
            match &entry.record {
                Record::Loss(loss) if loss.stage == Stage::Spool => reported += loss.records,
                _ => kept += 1,
            }
        }
        reader.done(batch.entries.last().unwrap().number + 1);
    }
    assert_eq!((kept + lost, reader.lost()), (sent, 0));
    assert_eq!((reported, spool.writer().lost()), (lost, 0));
}

#[test]
fn full_disk_is_logged_and_counted() {
    let dir = Dir::absent("spool-small");
    append(&dir.open(), 0..5);
    fs::write(dir.0.join("spool"), format!("{MARK}\nepoch 1\nboot another\n")).unwrap();
    let this = std::env::current_exe().unwrap();
    let out = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact spool::tests::child_of_a_small_disk"])
        .arg(this)
        .env("THALWEG_SMALL_DISK", &dir.0)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
}
