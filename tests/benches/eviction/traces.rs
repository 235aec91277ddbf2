//! Request traces over a media catalogue.

/// Number of repeatedly requested objects.
const CATALOGUE: u32 = 20_000;
const REQUESTS: usize = 300_000;
const SEED: u64 = 0x7468_616c_7765_6721;

/// A sequence of requests.
pub(crate) struct Trace {
    pub(crate) name: String,
    /// Size of each object in bytes.
    pub(crate) bytes: Vec<u64>,
    pub(crate) requests: Vec<u32>,
    /// Total size in bytes of the repeatedly requested objects.
    pub(crate) catalogue_bytes: u64,
}

/// A random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in [0, 1).
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, end: u32) -> u32 {
        (self.part() * f64::from(end)) as u32
    }

    fn object_bytes(&mut self) -> u64 {
        if self.below(10) == 0 { 1_000 } else { (100_000.0 * 50f64.powf(self.part())) as u64 }
    }
}

/// A distribution over ranks `0..n` with probability proportional to `1 / rank^exponent`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=n)
            .map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            })
            .collect();
        sums.iter_mut().for_each(|part| *part /= sum);
        Self(sums)
    }

    fn rank(&self, random: &mut Random) -> u32 {
        let part = random.part();
        self.0.partition_point(|sum| *sum <= part) as u32
    }
}

/// Requests in addition to those with skewed popularity.
enum Beside {
    Nothing,
    /// Occasional scans of content that is not requested otherwise.
    Scans,
    /// This percentage of requests is for objects that are never requested again.
    OneHitWonders(u32),
    /// Half of the requests are for the latest three segments of live channels.
    Live,
}

impl Trace {
    pub(crate) fn all() -> Vec<Trace> {
        let mut all = Vec::new();
        for exponent in [0.7, 0.9, 1.1] {
            all.push(Self::new(exponent, "", &Beside::Nothing));
        }
        all.push(Self::new(0.9, ", scans", &Beside::Scans));
        all.push(Self::new(0.9, ", 30% one-hit wonders", &Beside::OneHitWonders(30)));
        all.push(Self::new(0.9, ", half live", &Beside::Live));
        all
    }

    pub(crate) fn objects(&self) -> usize {
        self.bytes.len()
    }

    fn new(exponent: f64, beside_name: &str, beside: &Beside) -> Self {
        let mut random = Random(SEED);
        let zipf = Zipf::new(CATALOGUE, exponent);
        let mut trace = Self {
            name: format!("Zipf {exponent}{beside_name}"),
            bytes: (0..CATALOGUE).map(|_| random.object_bytes()).collect(),
            requests: Vec::with_capacity(REQUESTS),
            catalogue_bytes: 0,
        };
        trace.catalogue_bytes = trace.bytes.iter().sum();
        while trace.requests.len() < REQUESTS {
            trace.beside(beside, &mut random);
            trace.requests.push(zipf.rank(&mut random));
        }
        trace
    }

    fn beside(&mut self, beside: &Beside, random: &mut Random) {
        const SCAN_EVERY: usize = 20_000;
        const SCANNED: u32 = 4_000;
        match beside {
            Beside::Nothing => {}
            // Each scan covers the next third of the same 12,000 objects.
            Beside::Scans if self.requests.len() % SCAN_EVERY == SCAN_EVERY / 2 => {
                if self.objects() == CATALOGUE as usize {
                    self.bytes.extend((0..3 * SCANNED).map(|_| random.object_bytes()));
                }
                let pass = (self.requests.len() / SCAN_EVERY) as u32 % 3;
                self.requests.extend((0..SCANNED).map(|at| CATALOGUE + pass * SCANNED + at));
            }
            Beside::Scans => {}
            Beside::OneHitWonders(percent) => {
                while random.below(100) < *percent {
                    self.requests.push(self.bytes.len() as u32);
                    self.bytes.push(random.object_bytes());
                }
            }
            Beside::Live => self.live(random),
        }
    }

    /// Adds a request to a live channel. Each channel gets a new segment of 500 KB to 1.5 MB every
    /// `SEGMENT_REQUESTS` requests; old segments are not requested again.
    fn live(&mut self, random: &mut Random) {
        const CHANNELS: u32 = 60;
        const SEGMENT_REQUESTS: usize = 4_000;
        const WINDOW: u32 = 3;
        let turn = (self.requests.len() / SEGMENT_REQUESTS) as u32;
        let segment = (turn + WINDOW).saturating_sub(random.below(WINDOW));
        let object = CATALOGUE + segment * CHANNELS + random.below(CHANNELS);
        while self.bytes.len() <= object as usize {
            self.bytes.push(500_000 + u64::from(random.below(1_000_000)));
        }
        self.requests.push(object);
    }
}
