//! Reads the elements and their weights, and sorts them, in portions.

use super::numbers::{Numbers, is_ordered};
use super::options::Options;
use super::order::{By, Common, End, Item, Order};
use super::pattern::{Lookup, MISSED_AT_ONCE, Pattern, together};
use super::sorter::{Run, Sorter};
use super::source::{Reader, Source};
use super::texts::{Shown, TextId, Texts};
use darter_command::{Call, Refusal};

/// Elements that are read together, and whose keys are looked up together.
const BATCH: usize = 32;
/// Batches in one portion, if all elements are integers.
const BATCHES: usize = 8;
/// Integers passed to the general sorter in one portion.
const MIXED_AT_ONCE: usize = 256;
/// With LIMIT, integers use the integer sort only if at least one in this many is wanted. The
/// general sorter takes this many times the memory for each, but drops unwanted ones early.
const WANTED_SHARE: usize = 8;
/// Bytes of elements that are parsed as numbers in one portion, unless a single element has more.
const RANKED_BYTES: usize = 16 * 1024;

/// The result of a request, in order.
pub(super) struct Sorted {
    /// The sorted elements, if all are integers.
    pub(super) numbers: Numbers,
    /// Other sorted elements. They are read from the back if `is_backwards`.
    pub(super) run: Run,
    pub(super) is_backwards: bool,
    pub(super) texts: Texts,
}

/// Reads the elements of `source`, and sorts them.
pub(super) async fn sorted(
    call: &Call,
    source: Source,
    options: &Options,
    lookup: Option<&mut Lookup>,
) -> Result<Sorted, Refusal> {
    let mut order = options.order(source.is_set(), call.is_script);
    // A source in its own order is read directly.
    let is_in_order = order.by == By::Nothing && !source.is_set();
    let (len, now) = (source.len(), call.tx.home().shard.now());
    let wanted = options.range(len);
    let (places, keep) = match (is_in_order, options.is_descending) {
        (true, false) => (wanted.clone(), usize::MAX),
        (true, true) => (len - wanted.end..len - wanted.start, usize::MAX),
        (false, _) => (0..len, options.range(usize::MAX).end),
    };
    if let By::Texts(end) = order.by {
        order.skipped = common_bytes(call, &source, end).await;
    }
    let reader = Reader::new(&source, places, now);
    drop(source); // Frees the elements that have been read.
    let weights = options.weights().filter(|_| matches!(order.by, By::Numbers | By::Weights(_)));
    let by_value = order.by == By::Numbers && weights.is_none();
    let mut gather = Gather {
        by_value,
        keeps_numbers: by_value && keep >= len / WANTED_SHARE,
        reader,
        order,
        numbers: Numbers::new(order.is_descending),
        sorter: Sorter::new(order, keep),
        texts: Texts::default(),
        batch: Vec::with_capacity(BATCH),
        fresh: Texts::default(),
        count: 0,
    };
    let by = weights.map(std::slice::from_ref).zip(lookup);
    gather.all(call, by).await?;
    let Gather { mut numbers, sorter, texts, count, .. } = gather;
    let mut run = sorter.into_run();
    if !is_in_order {
        let wanted = options.range(count);
        let (mut of_numbers, mut of_run) = (wanted.start, wanted.start);
        while numbers.drop_front(&mut of_numbers) || run.drop_front(&mut of_run) {
            call.tx.pause().await;
        }
        numbers.truncate(wanted.len());
        run.truncate(wanted.len());
    }
    Ok(Sorted { numbers, run, is_backwards: is_in_order && options.is_descending, texts })
}

/// The length of the common prefix of all elements. Reads only a few if there is none.
async fn common_bytes(call: &Call, source: &Source, end: End) -> usize {
    let (mut common, mut bytes) = (Common::default(), 0);
    let now = call.tx.home().shard.now();
    let mut reader = Reader::new(source, 0..source.len(), now);
    loop {
        for _ in 0..BATCHES {
            let more = reader.next_slice(BATCH, &mut |text, _| bytes = common.add(text, end));
            if !more || bytes == 0 {
                return bytes;
            }
        }
        call.tx.pause().await;
    }
}

struct Gather {
    /// Elements are compared as numbers, so integers can use the integer sort.
    by_value: bool,
    keeps_numbers: bool,
    reader: Reader,
    order: Order,
    /// The integers among the elements, as long as Redis orders them by value.
    numbers: Numbers,
    /// All other elements.
    sorter: Sorter,
    /// The texts of the items.
    texts: Texts,
    /// The current batch of elements.
    batch: Vec<TextId>,
    fresh: Texts,
    /// The number of elements so far.
    count: usize,
}

/// The error for an element or a weight that is not a number.
fn not_a_number() -> Refusal {
    Refusal::line("ERR One or more scores can't be converted into double")
}

impl Gather {
    async fn all(
        &mut self,
        call: &Call,
        mut by: Option<(&[Pattern], &mut Lookup)>,
    ) -> Result<(), Refusal> {
        let mut is_valid = true;
        loop {
            let more = self.read();
            call.tx.pause().await;
            while !self.batch.is_empty() {
                is_valid &= match &mut by {
                    None => self.take(),
                    Some((pattern, lookup)) => {
                        let is_valid = self.take_by(pattern, lookup);
                        lookup.tell_missed(call, MISSED_AT_ONCE).await;
                        is_valid
                    }
                };
                while self.sorter.step(&self.texts) {
                    call.tx.pause().await;
                }
                call.tx.pause().await;
            }
            if !more {
                break;
            }
        }
        if !is_valid {
            return Err(not_a_number());
        }
        if !self.sorter.is_empty() {
            self.mix(call).await;
        }
        self.sorter.close(&self.texts);
        while self.numbers.step() || self.sorter.step(&self.texts) {
            call.tx.pause().await;
        }
        Ok(())
    }

    /// Moves the integers to the general sorter, because other elements have appeared.
    async fn mix(&mut self, call: &Call) {
        let Self { order, numbers, sorter, texts, .. } = self;
        let mut some = Vec::with_capacity(MIXED_AT_ONCE);
        while numbers.len() > 0 {
            numbers.take(MIXED_AT_ONCE, &mut some);
            for number in some.drain(..) {
                let item =
                    Item { rank: order.rank_of_int(number), text: texts.push_number(number) };
                sorter.push(item, texts);
            }
            while sorter.step(texts) {
                call.tx.pause().await;
            }
            call.tx.pause().await;
        }
    }

    /// Reads the next batch; stops after a batch that is not all integers. Returns true while
    /// elements are left.
    fn read(&mut self) -> bool {
        let Self { by_value, keeps_numbers, order, reader, numbers, sorter, batch, fresh, .. } =
            self;
        batch.clear();
        fresh.clear();
        let mut more = true;
        for _ in 0..BATCHES {
            more = reader.next_slice(BATCH, &mut |text, share| {
                self.count += 1;
                match text.as_int().filter(|_| *by_value) {
                    Some(number) if *keeps_numbers && is_ordered(number) => numbers.push(number),
                    Some(number) if !sorter.may_want(order.rank_of_int(number)) => {}
                    _ => batch.push(fresh.push(text, share)),
                }
            });
            if !more || !batch.is_empty() {
                break;
            }
        }
        more
    }

    /// Passes some elements of the batch to the sorter. Returns false if one is not a number but
    /// must be.
    fn take(&mut self) -> bool {
        let Self { order, sorter, texts, batch, fresh, .. } = self;
        let (mut is_valid, mut taken, mut bytes) = (true, 0, 0);
        for element in batch.iter().copied() {
            let rank = match element.as_int() {
                Some(number) if order.by == By::Numbers => Some(order.rank_of_int(number)),
                _ => {
                    bytes += fresh.len(element);
                    fresh.with(element, |text| order.rank(text))
                }
            };
            match rank {
                Some(rank) if sorter.may_want(rank) => {
                    let text = texts.push_from(fresh, element);
                    sorter.push(Item { rank, text }, texts);
                }
                Some(_) => {}
                None => is_valid = false,
            }
            taken += 1;
            if order.by == By::Numbers && bytes >= RANKED_BYTES {
                break;
            }
        }
        batch.drain(..taken);
        is_valid
    }

    /// [`Gather::take`] with weights at other keys, for the first elements of the batch.
    fn take_by(&mut self, pattern: &[Pattern], lookup: &mut Lookup) -> bool {
        let Self { order, sorter, texts, batch, fresh, .. } = self;
        let now = &batch[..together(pattern, (batch, fresh))];
        let (mut is_valid, mut elements, mut taken, mut bytes) = (true, now.iter(), 0, 0);
        lookup.each(pattern, (now, fresh), |weight| {
            let weight = if let Shown::Text(weight) = weight { Some(weight) } else { None };
            taken += 1;
            bytes += weight.map_or(0, |weight| weight.len());
            let goes_on = order.by != By::Numbers || bytes < RANKED_BYTES;
            let rank = weight.map_or(Some(order.rank_of_none()), |weight| order.rank(weight));
            let (Some(element), Some(rank)) = (elements.next(), rank) else {
                is_valid = false;
                return goes_on;
            };
            if !sorter.may_want(rank) {
                return goes_on;
            }
            let mut text = texts.push_from(fresh, *element);
            if matches!(order.by, By::Weights(_)) {
                let weight = weight.map_or(TextId::NONE, |weight| texts.push(weight, || None));
                text = texts.push_pair(text, weight);
            }
            sorter.push(Item { rank, text }, texts);
            goes_on
        });
        batch.drain(..taken);
        is_valid
    }
}
