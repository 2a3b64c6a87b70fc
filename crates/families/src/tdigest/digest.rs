//! The digest: observations in clusters, the smaller the nearer to an end.
//!
//! The merging t-digest (Dunning: "The t-digest: efficient estimates of distributions", 2021; Dunning
//! and Ertl: "Computing extremely accurate quantiles using t-digests", 2019), with the scale k2:
//! `k(q) = compression / Z * ln(q / (1 - q))`, `Z = 4 ln(n / compression) + 24`. A cluster spans at most
//! one unit of it, so the first and the last are single observations, and all are as long as there are
//! few. Observations gather in a buffer, which is sorted and merged with the clusters when it is full.
//!
//! Invariants:
//! - D1: clusters are in the order of their means; all means are finite, and between `min` and `max`.
//! - D2: no weight is 0, and their sum fits into an i64.

use std::sync::Arc;

/// The highest compression: its clusters are merged, or read, in one step.
pub(super) const COMPRESSION_MAX: u64 = 10_000;
/// The most nodes in the buffer, which is sorted in one step.
const BUFFER_MAX: usize = 1_024;

/// Some observations: their mean and their number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// The mean, which is finite.
    pub mean: f64,
    /// The number of observations, at least 1.
    pub weight: u64,
}

/// A digest: see the module. Cloning it counts two references.
#[derive(Clone, Debug, Default)]
pub struct Digest {
    compression: u64,
    merged: Arc<Vec<Node>>,
    buffer: Arc<Vec<Node>>,
    merged_weight: u64,
    buffer_weight: u64,
    min: f64,
    max: f64,
    compressions: u64,
}

/// The error that there are more observations than can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl Digest {
    /// Makes an empty digest. `None` if the compression is 0 or too high.
    #[must_use]
    pub fn new(compression: u64) -> Option<Self> {
        let is_one = (1..=COMPRESSION_MAX).contains(&compression);
        is_one.then(|| Self { compression, ..Self::default() })
    }

    /// The compression with which the digest was made.
    #[must_use]
    pub fn compression(&self) -> u64 {
        self.compression
    }

    /// The largest number of nodes, merged or not, as RedisBloom counts them.
    #[must_use]
    pub fn capacity(&self) -> usize {
        6 * self.compression as usize + 10
    }

    /// The most clusters that a merge leaves: two neighbours span more than one unit of the scale,
    /// which has at most as many as the compression, whatever the weight.
    fn clusters_max(&self) -> usize {
        2 * self.compression as usize + 20
    }

    /// The number of clusters.
    #[must_use]
    pub fn merged(&self) -> &[Node] {
        &self.merged
    }

    /// The number of nodes that are not merged yet.
    #[must_use]
    pub fn buffer(&self) -> &[Node] {
        &self.buffer
    }

    /// The number of observations in clusters, and in the buffer.
    #[must_use]
    pub fn weights(&self) -> (u64, u64) {
        (self.merged_weight, self.buffer_weight)
    }

    /// The number of observations.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.merged_weight + self.buffer_weight
    }

    /// How often the buffer was merged.
    #[must_use]
    pub fn compressions(&self) -> u64 {
        self.compressions
    }

    /// The smallest and the greatest observation, if there are any.
    #[must_use]
    pub fn ends(&self) -> Option<(f64, f64)> {
        (self.weight() > 0).then_some((self.min, self.max))
    }

    /// The bytes of memory of the digest.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        (self.merged.capacity() + self.buffer.capacity()) * size_of::<Node>()
    }

    /// Whether this number of further observations can be counted.
    #[must_use]
    pub fn has_room(&self, weight: u64) -> bool {
        self.weight().checked_add(weight).is_some_and(|all| all <= i64::MAX as u64)
    }

    /// Adds observations.
    pub fn add(&mut self, node: Node) -> Result<(), Overflow> {
        debug_assert!(node.mean.is_finite() && node.weight > 0, "D1, D2: {node:?}");
        if !self.has_room(node.weight) {
            return Err(Overflow);
        }
        let room = self.capacity().saturating_sub(self.merged.len());
        if self.buffer.len() >= room.clamp(1, BUFFER_MAX) {
            self.compress();
        }
        if self.weight() == 0 {
            (self.min, self.max) = (node.mean, node.mean);
        }
        (self.min, self.max) = (self.min.min(node.mean), self.max.max(node.mean));
        Arc::make_mut(&mut self.buffer).push(node);
        self.buffer_weight += node.weight;
        Ok(())
    }

    /// Widens the ends to those of another digest whose nodes are added.
    pub fn widen(&mut self, (min, max): (f64, f64)) {
        debug_assert!(self.weight() > 0, "an empty digest has no ends");
        (self.min, self.max) = (self.min.min(min), self.max.max(max));
    }

    /// Merges the buffer into the clusters.
    pub fn compress(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let all = self.sorted();
        let mut clusters = Clusters::new(self.compression, self.weight());
        all.into_iter().for_each(|node| clusters.push(node));
        self.merged = Arc::new(clusters.end());
        self.merged_weight += std::mem::take(&mut self.buffer_weight);
        self.buffer = Arc::default();
        self.compressions = self.compressions.saturating_add(1); // A file may hold any number.
    }

    /// All nodes, in the order of their means.
    fn sorted(&self) -> Vec<Node> {
        let mut buffer = self.buffer.to_vec();
        buffer.sort_unstable_by(|one, other| one.mean.total_cmp(&other.mean));
        let mut all = Vec::with_capacity(self.merged.len() + buffer.len());
        let mut merged = self.merged.iter().copied().peekable();
        for node in buffer {
            while let Some(before) = merged.next_if(|before| before.mean <= node.mean) {
                all.push(before);
            }
            all.push(node);
        }
        all.extend(merged);
        all
    }

    /// The nodes in order, for reading.
    #[must_use]
    pub fn view(&self) -> View {
        let (nodes, weight) = (self.sorted(), self.weight() as f64);
        View { nodes, weight, min: self.min, max: self.max }
    }

    /// Makes a digest without nodes from the head of a file. `None` if the head is invalid.
    #[must_use]
    pub(super) fn of_head(
        (compression, compressions): (u64, u64),
        (min, max): (f64, f64),
    ) -> Option<Self> {
        let has_ends = min.is_finite() && max.is_finite() && min <= max;
        let new = Self::new(compression).filter(|_| has_ends)?;
        Some(Self { min, max, compressions, ..new })
    }

    /// Adds clusters of a file, or nodes that are not merged. Returns false if they are invalid at
    /// this point.
    #[must_use]
    pub(super) fn take(&mut self, are_merged: bool, new: &[Node]) -> bool {
        let (nodes_max, limit) = (self.clusters_max(), i64::MAX as u64 - self.weight());
        let (nodes, nodes_max, weight) = if are_merged {
            (&mut self.merged, nodes_max, &mut self.merged_weight)
        } else {
            (&mut self.buffer, BUFFER_MAX, &mut self.buffer_weight)
        };
        let sum = new.iter().try_fold(0_u64, |sum, node| sum.checked_add(node.weight));
        let Some(sum) = sum.filter(|sum| *sum <= limit) else { return false };
        let is_one =
            |node: &Node| node.weight > 0 && node.mean >= self.min && node.mean <= self.max;
        let order = nodes.last().into_iter().chain(new);
        let is_sorted = !are_merged || order.is_sorted_by(|one, two| one.mean <= two.mean);
        if nodes.len() + new.len() > nodes_max || !is_sorted || !new.iter().all(is_one) {
            return false;
        }
        Arc::make_mut(nodes).extend_from_slice(new);
        *weight += sum;
        true
    }

    /// The smallest and the greatest observation as stored. They mean nothing in an empty digest.
    pub(super) fn kept_ends(&self) -> (f64, f64) {
        (self.min, self.max)
    }

    /// Panics if an invariant does not hold.
    pub fn check_invariants(&self) {
        let ends = self.kept_ends();
        for nodes in [&self.merged, &self.buffer] {
            for node in nodes.iter() {
                let is_between = node.mean >= ends.0 && node.mean <= ends.1;
                assert!(is_between && node.weight > 0, "D1, D2: {node:?} of {ends:?}");
            }
        }
        assert!(self.merged.is_sorted_by(|one, other| one.mean <= other.mean), "D1");
        let sum = |nodes: &[Node]| nodes.iter().map(|node| node.weight).sum::<u64>();
        assert_eq!((sum(&self.merged), sum(&self.buffer)), self.weights(), "D2");
    }
}

/// Clusters that are being formed, from nodes in order.
struct Clusters {
    /// e to the power of Z / compression: the factor of q / (1 - q) for each unit of the scale.
    unit: f64,
    weight: f64,
    done: Vec<Node>,
    current: Option<Node>,
    /// Observations before the current one, and how many there may be up to its end.
    before: f64,
    end_max: f64,
}

impl Clusters {
    fn new(compression: u64, weight: u64) -> Self {
        let (compression, weight) = (compression as f64, weight as f64);
        // With very few observations for a high compression Z is small, and all stay single.
        let z = (4.0 * (weight / compression).ln() + 24.0).max(1.0);
        let unit = (z / compression).exp();
        Self { unit, weight, done: Vec::new(), current: None, before: 0.0, end_max: 0.0 }
    }

    fn push(&mut self, node: Node) {
        if let Some(current) = &mut self.current {
            let weight = current.weight + node.weight;
            if self.before + weight as f64 <= self.end_max {
                let share = node.weight as f64 / weight as f64;
                // Between both, also after rounding.
                let mean = current.mean + (node.mean - current.mean) * share;
                current.mean = mean.clamp(current.mean, node.mean);
                current.weight = weight;
                return;
            }
            self.before += current.weight as f64;
            self.done.push(*current);
        }
        let q = self.before / self.weight;
        let end = q * self.unit / (1.0 - q + q * self.unit);
        (self.current, self.end_max) = (Some(node), end * self.weight);
    }

    fn end(mut self) -> Vec<Node> {
        self.done.extend(self.current);
        self.done.shrink_to_fit();
        self.done
    }
}

/// The nodes of a digest in order, for reading.
#[derive(Debug)]
pub struct View {
    nodes: Vec<Node>,
    weight: f64,
    min: f64,
    max: f64,
}

impl View {
    /// Whether there are no observations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The number of observations.
    #[must_use]
    pub fn weight(&self) -> f64 {
        self.weight
    }

    /// The greatest observation. Meaningless if there are none.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The number of nodes. A query reads each of them.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The value below which a share of the observations lies (from 0 to 1). NaN if there are none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        match share {
            _ if self.is_empty() => f64::NAN,
            share if share <= 0.0 => self.min,
            share if share >= 1.0 => self.max,
            share => self.at(share * self.weight),
        }
    }

    /// The value of the observation with this rank, counted from 0. Infinite beyond the last.
    #[must_use]
    pub fn by_rank(&self, rank: f64) -> f64 {
        match rank {
            _ if self.is_empty() => f64::NAN,
            rank if rank >= self.weight => f64::INFINITY,
            0.0 => self.min,
            rank if rank >= self.weight - 1.0 => self.max,
            rank => self.at(rank + 0.5),
        }
    }

    /// The value at a position among the observations. It grows evenly between the middles of
    /// clusters. A single observation has its exact position.
    fn at(&self, place: f64) -> f64 {
        let mut before = 0.0;
        for (at, node) in self.nodes.iter().enumerate() {
            let weight = node.weight as f64;
            if place >= before + weight && at + 1 < self.nodes.len() {
                before += weight;
                continue;
            }
            if node.weight == 1 {
                return node.mean;
            }
            let middle = before + weight / 2.0;
            let (from, to) = if place < middle {
                (self.left_of(at, before), (middle, node.mean))
            } else {
                ((middle, node.mean), self.right_of(at, before + weight))
            };
            return between(place, from, to);
        }
        f64::NAN
    }

    /// The lower end of a cluster's values, which begins at `start`: the middle of the cluster
    /// before it, the end of a single observation, or the minimum.
    fn left_of(&self, at: usize, start: f64) -> (f64, f64) {
        match at.checked_sub(1).map(|before| self.nodes[before]) {
            Some(node) if node.weight == 1 => (start, node.mean),
            Some(node) => (start - node.weight as f64 / 2.0, node.mean),
            None => (0.0, self.min),
        }
    }

    /// The upper end of a cluster's values, which ends at `end`.
    fn right_of(&self, at: usize, end: f64) -> (f64, f64) {
        match self.nodes.get(at + 1) {
            Some(node) if node.weight == 1 => (end, node.mean),
            Some(node) => (end + node.weight as f64 / 2.0, node.mean),
            None => (self.weight, self.max),
        }
    }

    /// The number of observations that are smaller, and half the number of equal ones. -1 below the
    /// first, the number of all observations above the last, NaN if there are none.
    #[must_use]
    pub fn below(&self, value: f64) -> f64 {
        match value {
            _ if self.is_empty() => f64::NAN,
            value if value < self.min => -1.0,
            value if value > self.max => self.weight,
            value => self.place_of(value),
        }
    }

    fn place_of(&self, value: f64) -> f64 {
        let (mut before, mut equal) = (0.0, 0.0);
        for (at, node) in self.nodes.iter().enumerate() {
            let weight = node.weight as f64;
            if node.mean < value {
                before += weight;
            } else if node.mean == value {
                equal += weight;
            } else if equal > 0.0 {
                break;
            } else {
                return self.place_before(at, before, value);
            }
        }
        if equal > 0.0 {
            return before + equal / 2.0;
        }
        self.place_before(self.nodes.len(), before, value)
    }

    /// The position of a value between the cluster at `at` and the one before it, which ends at
    /// `end`.
    fn place_before(&self, at: usize, end: f64, value: f64) -> f64 {
        let (from, start) = match at.checked_sub(1).map(|before| self.nodes[before]) {
            Some(node) if node.weight == 1 => (node.mean, end),
            Some(node) => (node.mean, end - node.weight as f64 / 2.0),
            None => (self.min, 0.0),
        };
        let (to, stop) = match self.nodes.get(at) {
            Some(node) if node.weight == 1 => (node.mean, end),
            Some(node) => (node.mean, end + node.weight as f64 / 2.0),
            None => (self.max, self.weight),
        };
        between(value, (from, start), (to, stop))
    }

    /// The share of observations that are smaller, and half the share of equal ones.
    #[must_use]
    pub fn share_below(&self, value: f64) -> f64 {
        self.below(value).max(0.0) / self.weight
    }

    /// The mean of the observations between two shares of them.
    #[must_use]
    pub fn trimmed_mean(&self, low: f64, high: f64) -> f64 {
        let (from, to) = ((low * self.weight).floor(), (high * self.weight).ceil());
        let (mut before, mut sum, mut count) = (0.0, 0.0, 0.0);
        for node in &self.nodes {
            let end = before + node.weight as f64;
            let inside = (end.min(to) - f64::max(before, from)).max(0.0);
            (sum, count, before) = (sum + inside * node.mean, count + inside, end);
        }
        let mean = sum / count;
        let mean = if sum.is_finite() { mean } else { self.mean_of_huge((from, to), count) };
        mean.clamp(self.min, self.max)
    }

    /// The mean of `count` observations between two ranks, if their sum is infinite.
    fn mean_of_huge(&self, (from, to): (f64, f64), count: f64) -> f64 {
        let (mut before, mut mean) = (0.0, 0.0);
        for node in &self.nodes {
            let end = before + node.weight as f64;
            let inside = (end.min(to) - f64::max(before, from)).max(0.0);
            (mean, before) = (mean + node.mean * (inside / count), end);
        }
        mean
    }
}

/// The value at `x` on the way from one point to another.
fn between(x: f64, (x0, y0): (f64, f64), (x1, y1): (f64, f64)) -> f64 {
    if x1 <= x0 {
        return y1;
    }
    let share = ((x - x0) / (x1 - x0)).clamp(0.0, 1.0);
    // Not a difference, which may be infinite.
    (y0 * (1.0 - share) + y1 * share).clamp(y0.min(y1), y0.max(y1))
}
