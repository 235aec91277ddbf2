//! Smoke test: runs each target on its corpus and on mutations of it, which are the same in each
//! run.

use std::path::Path;

use thalweg_fuzz::{TARGETS, Target};

/// Number of mutations per corpus. A target runs a few thousand instructions for each mutation.
const MUTATIONS: u64 = 20_000;
/// Maximum number of mutation steps applied to a corpus input.
const STEPS_MAX: usize = 4;
/// Maximum length of a mutated input.
const INPUT_BYTES_MAX: usize = 2048;

/// Tokens of the parsed grammars.
const TOKENS: [&[u8]; 24] = [
    b",",
    b";",
    b"=",
    b"-",
    b"/",
    b":",
    b"*",
    b"\"",
    b"\\",
    b" ",
    b"\t",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff",
    b"0",
    b"1",
    b"2147483648",
    b"18446744073709551615",
    b"18446744073709551616",
    b"W/\"a\"",
    b"bytes=",
    b"max-age=",
];

/// SplitMix64 generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end` inclusive.
    fn up_to(&mut self, end: usize) -> usize {
        (self.next() % (end as u64 + 1)) as usize
    }

    fn choice<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.up_to(of.len() - 1)]
    }

    /// Returns a random subrange of `0..end`.
    fn span(&mut self, end: usize) -> std::ops::Range<usize> {
        let (one, other) = (self.up_to(end), self.up_to(end));
        one.min(other)..one.max(other)
    }
}

/// Prints the input as a literal to paste if the target panics.
struct Shown<'a>(Target, &'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} failed with b\"{}\"", self.0.name, self.1.escape_ascii());
        }
    }
}

fn run(target: Target, input: &[u8]) {
    let shown = Shown(target, input);
    (target.run)(input);
    drop(shown);
}

fn corpus(target: Target) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries =
        std::fs::read_dir(&directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    // Sort by name, so that mutations are the same on every machine.
    let mut paths: Vec<_> =
        entries.map(|entry| entry.expect("corpus directory must be readable").path()).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("corpus file must be readable")).collect()
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.up_to(input.len());
    match random.up_to(6) {
        0 => drop(input.splice(at..at, random.choice(&TOKENS).iter().copied())),
        1 => drop(input.drain(random.span(input.len()))),
        2 => input.truncate(at),
        3 => {
            let again = input[random.span(input.len())].to_vec();
            input.splice(at..at, again);
        }
        4 => {
            let other = random.choice(corpus);
            let part = other[random.span(other.len())].to_vec();
            input.splice(at..at, part);
        }
        5 if !input.is_empty() => {
            let at = at.min(input.len() - 1);
            input[at] ^= 1 << random.up_to(7);
        }
        _ => input.push(random.next() as u8),
    }
    input.truncate(INPUT_BYTES_MAX);
}

#[test]
fn corpora_and_their_mutations_pass() {
    for (number, target) in TARGETS.into_iter().enumerate() {
        let corpus = corpus(target);
        assert!(!corpus.is_empty(), "{} must have a corpus", target.name);
        for input in &corpus {
            run(target, input);
        }
        let mut random = Random(number as u64);
        for _ in 0..MUTATIONS {
            let mut input = random.choice(&corpus).clone();
            for _ in 0..=random.up_to(STEPS_MAX - 1) {
                mutate(&mut input, &corpus, &mut random);
            }
            run(target, &input);
        }
    }
}
