//! Sample of clients whose responses are recorded: one client in N.
//!
//! The draw is by client, so statistics by client stay whole, and it depends on nothing that a
//! response does. A client is an IPv4 address or the /64 of an IPv6 address. It is drawn anew each
//! day (UTC), and edges with the same salt draw alike, so a client that several edges serve is in
//! the samples of all or of none.
//!
//! The draw is `XXH3_64(seed = XXH3_64(salt), key) × N < 2^64`. The key is the client's address (an
//! IPv4 address in IPv4-mapped form, 16 bytes) and the number of the day (8 bytes). The clients of
//! a smaller sample are therefore among those of a larger one.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::{SystemTime, UNIX_EPOCH};

use twox_hash::XxHash3_64;

/// Seconds for which a client stays in or out of the sample.
const PERIOD_S: u64 = 24 * 3_600;
/// The bits of an IPv6 address that identify a client: its /64.
const IPV6_CLIENT_MASK: u128 = !0 << 64;

/// A sample of clients.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientSample {
    one_in: NonZeroU32,
    seed: u64,
}

impl ClientSample {
    /// Samples one client in `one_in`; 1 for all clients.
    pub(crate) fn new(one_in: NonZeroU32, salt: &str) -> Self {
        Self { one_in, seed: XxHash3_64::oneshot(salt.as_bytes()) }
    }

    /// Returns the number of clients for which each sampled one stands; `None` if all are sampled.
    pub(super) fn one_in(&self) -> Option<NonZeroU32> {
        (self.one_in > NonZeroU32::MIN).then_some(self.one_in)
    }

    /// Returns whether the client is in the sample now.
    pub(super) fn includes_now(&self, client: IpAddr) -> bool {
        // The clock is not read unless clients are sampled.
        self.one_in().is_none() || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            self.includes(client, now.as_secs())
        }
    }

    /// Returns whether the client is in the sample at this time.
    fn includes(&self, client: IpAddr, unix_s: u64) -> bool {
        let client = match client.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_CLIENT_MASK),
        };
        let mut key = [0; 24];
        key[..16].copy_from_slice(&client.octets());
        key[16..].copy_from_slice(&(unix_s / PERIOD_S).to_be_bytes());
        let hash = XxHash3_64::oneshot_with_seed(self.seed, &key);
        hash.checked_mul(self.one_in.get().into()).is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A time in the middle of a day.
    const NOON_UNIX_S: u64 = 1_795_564_800 / PERIOD_S * PERIOD_S + PERIOD_S / 2;
    const CLIENTS: u32 = 100_000;

    fn sample(one_in: u32, salt: &str) -> ClientSample {
        ClientSample::new(NonZeroU32::new(one_in).unwrap(), salt)
    }

    fn client(number: u32) -> IpAddr {
        IpAddr::V4((0x0a00_0000 + number).into())
    }

    fn clients(sample: &ClientSample, unix_s: u64) -> Vec<u32> {
        (0..CLIENTS).filter(|&number| sample.includes(client(number), unix_s)).collect()
    }

    /// Checks a count against a binomial distribution: within four standard deviations.
    fn check_share(count: usize, of: usize, one_in: u32) {
        let share = 1.0 / f64::from(one_in);
        let expected = of as f64 * share;
        let deviation = (expected * (1.0 - share)).sqrt();
        assert!((count as f64 - expected).abs() <= 4.0 * deviation, "{count} of {of}, one in {one_in}");
    }

    #[test]
    fn one_client_in_n_is_sampled_for_a_day() {
        for one_in in [1, 2, 3, 10, 100, 1000] {
            let sample = sample(one_in, "");
            let sampled = clients(&sample, NOON_UNIX_S);
            check_share(sampled.len(), CLIENTS as usize, one_in);
            for unix_s in [NOON_UNIX_S - PERIOD_S / 2, NOON_UNIX_S + PERIOD_S / 2 - 1] {
                assert_eq!(clients(&sample, unix_s), sampled, "the day has one draw");
            }
        }
    }

    #[test]
    fn days_and_salts_are_independent() {
        let sampled = clients(&sample(10, "a"), NOON_UNIX_S);
        for other in
            [clients(&sample(10, "a"), NOON_UNIX_S + PERIOD_S), clients(&sample(10, "b"), NOON_UNIX_S)]
        {
            let both = other.iter().filter(|number| sampled.contains(number)).count();
            check_share(both, sampled.len(), 10);
        }
    }

    #[test]
    fn smaller_sample_is_part_of_a_larger_one() {
        let (large, small) = (sample(4, ""), sample(7, ""));
        let sampled = clients(&small, NOON_UNIX_S);
        assert!(sampled.iter().all(|&number| large.includes(client(number), NOON_UNIX_S)));
    }

    #[test]
    fn client_is_an_ipv4_address_or_a_64() {
        let sample = sample(2, "");
        let includes = |address: &str| sample.includes(address.parse().unwrap(), NOON_UNIX_S);
        let mut included = [0; 2];
        for number in 0..256 {
            let network = format!("2001:db8:0:{number:x}:");
            assert_eq!(includes(&format!("{network}:1")), includes(&format!("{network}ffff::2")));
            included[0] += usize::from(includes(&format!("{network}:1")));
            assert_eq!(includes(&format!("192.0.2.{number}")), includes(&format!("::ffff:192.0.2.{number}")));
            included[1] += usize::from(includes(&format!("192.0.2.{number}")));
        }
        included.into_iter().for_each(|count| check_share(count, 256, 2));
    }

    #[test]
    fn all_clients_are_sampled_by_default() {
        assert_eq!((sample(1, "").one_in(), sample(2, "").one_in()), (None, NonZeroU32::new(2)));
        assert!((0..CLIENTS).all(|number| sample(1, "").includes_now(client(number))));
    }
}
