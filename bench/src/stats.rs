//! Medians, spread and percentiles.

/// The value that so many of a hundred are not above: by the nearest rank, of a list that is sorted.
fn at_rank(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// The median, that of an even number being the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let upper = sorted.get(half).copied().unwrap_or_default();
    if sorted.len() % 2 == 1 || half == 0 {
        return upper;
    }
    sorted.get(half - 1).map_or(upper, |lower| f64::midpoint(*lower, upper))
}

/// How far apart the middle half of the values lies, as a part of the median.
pub fn spread(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = median(&sorted);
    if middle > 0.0 { (at_rank(&sorted, 75.0) - at_rank(&sorted, 25.0)) / middle } else { 0.0 }
}

/// Buckets for each doubling: a value is told to 1.6 %.
const STEPS: u64 = 64;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Up to 2^40 ns: 18 minutes.
const BUCKETS: usize = (STEPS * (40 - STEP_BITS as u64 + 1)) as usize;

/// How often an operation took so long.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// Nothing yet.
    pub fn new() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }

    /// One more that took `ns` nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(Self::bucket(ns)) {
            *count += 1;
        }
        self.total += 1;
    }

    /// All that `other` has, too.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// The nanoseconds that so many of a hundred did not exceed; none where nothing was added.
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let rank = (percent / 100.0 * self.total as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        place.filter(|_| self.total > 0).map(Self::value)
    }

    #[inline]
    fn bucket(ns: u64) -> usize {
        if ns < STEPS {
            return ns as usize;
        }
        let doubling = u64::from(63 - ns.leading_zeros() - STEP_BITS);
        let place = STEPS * (doubling + 1) + ((ns >> doubling) & (STEPS - 1));
        (place as usize).min(BUCKETS - 1)
    }

    /// The middle of a bucket.
    fn value(bucket: usize) -> u64 {
        let (doubling, step) = (bucket as u64 / STEPS, bucket as u64 % STEPS);
        match doubling.checked_sub(1) {
            None => step,
            Some(doubling) => ((STEPS + step) << doubling) + ((1 << doubling) >> 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    #[test]
    fn spread_is_that_of_the_middle_half_and_leaves_out_what_lies_outside() {
        assert_eq!(spread(&[]), 0.0);
        assert_eq!(spread(&[5.0; 7]), 0.0);
        // Quartiles by rank: the second and the sixth of seven.
        assert_eq!(spread(&[1000.0, 9.0, 10.0, 10.0, 10.0, 12.0, 1.0]), 0.3);
    }

    #[test]
    fn percentiles_are_told_to_two_hundredths() {
        let mut all = Histogram::new();
        assert_eq!(all.percentile(50.0), None);
        for ns in 1..=100_000u64 {
            all.add(ns);
        }
        for percent in [1.0, 50.0, 99.0, 100.0] {
            let found = all.percentile(percent).unwrap() as f64;
            let exact = 1000.0 * percent;
            assert!((found / exact - 1.0).abs() < 0.02, "{percent}: {found}");
        }
    }

    #[test]
    fn small_values_are_exact_and_huge_ones_are_kept() {
        let mut all = Histogram::new();
        for ns in [7, 7, 7, 63, u64::MAX] {
            all.add(ns);
        }
        assert_eq!((all.percentile(50.0), all.percentile(80.0)), (Some(7), Some(63)));
        assert!(all.percentile(100.0).unwrap() > 1 << 39);
    }

    #[test]
    fn histograms_add_up() {
        let (mut one, mut other) = (Histogram::new(), Histogram::new());
        one.add(10);
        other.add(20);
        other.add(20);
        one.merge(&other);
        assert_eq!((one.percentile(33.0), one.percentile(50.0)), (Some(10), Some(20)));
    }

    #[test]
    fn a_bucket_holds_its_own_value() {
        for bucket in 0..BUCKETS {
            assert_eq!(Histogram::bucket(Histogram::value(bucket)), bucket);
        }
    }
}
