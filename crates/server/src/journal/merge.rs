//! The order in which the blocks of all cores are written.
//!
//! Rules (docs/design/0039-journal.md):
//! - M1: the blocks of a core stay in order.
//! - M2: a block follows every block that its author could know of. Their stamps are lower, and
//!   they were handed over before; so blocks are taken by their stamps, up to a time that was read
//!   before the lanes were looked at.
//! - M3: a transaction is written at the place of its first end, as a whole. Until then its keys
//!   are locked, so nothing between its records and that place concerns them. While some of its
//!   ends are missing, nothing with a higher stamp than the first is written: its author may have
//!   seen that part.
//! - M4: an act of all cores is written once. In a transaction, what precedes it on any core
//!   precedes it in the file.
//! - M5: at a cut, all blocks that precede it on any core are written before it. All keys are
//!   locked while the cores cut, so those that follow it know of no cut that is still missing.

use super::{Block, Body, Encoded, Piece};
use darter_resp::{Output, Reply};
use std::collections::{HashMap, VecDeque};

/// Gathers the blocks of all cores, and puts them in order.
#[derive(Debug)]
pub(super) struct Merger {
    /// By core: the blocks that were not put in order yet.
    queues: Vec<VecDeque<Block>>,
    /// The unfinished transactions, by number.
    open: HashMap<u64, Open>,
    /// The database of the last command that was written.
    database: Option<usize>,
    /// By core: the position in the ring after the last of its blocks that are in order.
    ring_ends: Vec<u64>,
}

/// The records of a transaction, as far as they have been met.
#[derive(Debug, Default)]
struct Open {
    /// The stamp of the first of them.
    since: u64,
    /// The commands between acts of all cores, and these acts.
    sections: Vec<Section>,
    /// By core: the section of its next commands.
    next: HashMap<usize, usize>,
}

#[derive(Debug, Default)]
struct Section {
    bodies: Vec<Encoded>,
    /// The act of all cores that ends the section.
    act: Option<Encoded>,
}

/// The result of [`Merger::advance`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Advanced {
    /// Everything with a stamp up to this one is in order.
    To(u64),
    /// Everything before the cut with this number is in order, and nothing after it.
    Cut(u64),
}

/// Commands in their final order.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    pub(super) pieces: Vec<Piece>,
    pub(super) bytes: usize,
    pub(super) count: usize,
}

impl Merger {
    pub(super) fn new(cores: usize) -> Self {
        Self {
            queues: (0..cores).map(|_| VecDeque::new()).collect(),
            open: HashMap::new(),
            database: None,
            ring_ends: vec![0; cores],
        }
    }

    /// Sets the positions in the ring before the next blocks.
    pub(super) fn set_ring_ends(&mut self, ends: Vec<u64>) {
        self.ring_ends = ends;
    }

    /// By core: the position in the ring up to which everything is in order.
    pub(super) fn ring_ends(&self) -> &[u64] {
        &self.ring_ends
    }

    /// Adds blocks of a core, in order.
    pub(super) fn take_in(&mut self, core: usize, blocks: impl IntoIterator<Item = Block>) {
        self.queues[core].extend(blocks);
    }

    /// Names the database again before the next command, because a new file begins.
    pub(super) fn begin_file(&mut self) {
        self.database = None;
    }

    /// Appends to `into` what can be written of the blocks with stamps up to `now`, a time that was
    /// read before the last blocks were taken.
    pub(super) fn advance(&mut self, now: u64, into: &mut Ordered) -> Advanced {
        loop {
            let Some((stamp, core)) = self.next() else {
                match self.cut() {
                    Some(number) => return Advanced::Cut(number),
                    None => return Advanced::To(self.safe_up_to(now)),
                }
            };
            if stamp > now {
                return Advanced::To(self.safe_up_to(now));
            }
            let front = self.queues[core].front().map(|block| &block.body);
            if let Some(Body::End(part)) = front {
                let (number, parts) = (part.transaction, part.parts);
                if self.ends(number) < parts {
                    return Advanced::To(self.safe_up_to(stamp.saturating_sub(1)));
                }
                self.gather(number);
                self.write_transaction(number, into);
                continue;
            }
            let Some(block) = self.queues[core].pop_front() else {
                unreachable!("it was just seen")
            };
            self.ring_ends[core] = self.ring_ends[core].max(block.ring_end);
            match block.body {
                Body::Alone(commands) => self.write(commands, into),
                body => self.keep(core, stamp, body),
            }
        }
    }

    /// The lowest stamp of the blocks at the heads of the queues that may be taken, and its core.
    fn next(&self) -> Option<(u64, usize)> {
        let heads = self.queues.iter().enumerate().filter_map(|(core, queue)| {
            let block = queue.front()?;
            (!matches!(block.body, Body::Cut(_))).then_some((block.stamp, core))
        });
        heads.min()
    }

    /// The last stamp, at most `stamp`, up to which everything is in order: before the first cut
    /// that a queue has reached, and before unfinished transactions. Their changes are not written
    /// yet, and their clients may be answered before the last end comes.
    fn safe_up_to(&self, stamp: u64) -> u64 {
        let cuts = self.queues.iter().filter_map(|queue| {
            let block = queue.front()?;
            matches!(block.body, Body::Cut(_)).then_some(block.stamp)
        });
        let open = self.open.values().map(|open| open.since);
        cuts.chain(open).map(|stop| stop.saturating_sub(1)).fold(stamp, u64::min)
    }

    /// True if only further blocks can bring more into order.
    pub(super) fn is_blocked(&self) -> bool {
        !self.open.is_empty() || self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// If all queues have reached the cut, passes it, and returns its number.
    fn cut(&mut self) -> Option<u64> {
        let number = |queue: &VecDeque<Block>| match queue.front()?.body {
            Body::Cut(number) => Some(number),
            _ => None,
        };
        let last = self.queues.iter().filter_map(number).max()?;
        for queue in &mut self.queues {
            // A cut of an earlier rewrite, which was given up, is passed over.
            while number(queue).is_some_and(|cut| cut < last) {
                queue.pop_front();
            }
        }
        if !self.queues.iter().all(|queue| number(queue) == Some(last)) {
            return None;
        }
        self.queues.iter_mut().for_each(|queue| _ = queue.pop_front());
        Some(last)
    }

    /// The number of ends of a transaction that have come.
    fn ends(&self, number: u64) -> usize {
        let ends = self.queues.iter().filter(|queue| {
            queue
                .iter()
                .any(|block| matches!(&block.body, Body::End(part) if part.transaction == number))
        });
        ends.count()
    }

    /// Takes all blocks of a transaction out of the queues.
    fn gather(&mut self, number: u64) {
        for core in 0..self.queues.len() {
            for block in std::mem::take(&mut self.queues[core]) {
                match &block.body {
                    Body::Of(part, _) | Body::ActOfAll(part, _) if part.transaction == number => {
                        self.keep(core, block.stamp, block.body);
                    }
                    Body::End(part) if part.transaction == number => {}
                    _ => self.queues[core].push_back(block),
                }
            }
        }
    }

    /// Keeps a block of a transaction until its place is known.
    fn keep(&mut self, core: usize, stamp: u64, body: Body) {
        let (Body::Of(part, commands) | Body::ActOfAll(part, commands)) = &body else {
            unreachable!("{body:?} is of no transaction")
        };
        let new = || Open { since: stamp, ..Open::default() };
        let open = self.open.entry(part.transaction).or_insert_with(new);
        let at = open.next.entry(core).or_default();
        if open.sections.len() <= *at {
            open.sections.resize_with(*at + 1, Section::default);
        }
        match body {
            Body::Of(_, commands) => open.sections[*at].bodies.push(commands),
            Body::ActOfAll(_, commands) => {
                open.sections[*at].act.get_or_insert(commands);
                *at += 1;
            }
            _ => unreachable!("{commands:?} was kept"),
        }
    }

    fn write_transaction(&mut self, number: u64, into: &mut Ordered) {
        let Some(open) = self.open.remove(&number) else { return }; // It has changed nothing.
        let all =
            || open.sections.iter().flat_map(|section| section.bodies.iter().chain(&section.act));
        let is_wrapped = all().map(|commands| commands.count).sum::<usize>() > 1;
        if is_wrapped {
            into.command(&[b"MULTI"]);
        }
        for section in open.sections {
            section.bodies.into_iter().chain(section.act).for_each(|body| self.write(body, into));
        }
        if is_wrapped {
            into.command(&[b"EXEC"]);
        }
    }

    fn write(&mut self, commands: Encoded, into: &mut Ordered) {
        if let Some((first, last)) = commands.databases {
            if self.database != Some(first) {
                into.command(&[b"SELECT", first.to_string().as_bytes()]);
            }
            self.database = Some(last);
        }
        into.count += commands.count;
        into.bytes += commands.bytes;
        into.pieces.extend(commands.pieces);
    }
}

impl Ordered {
    /// Adds a short command.
    fn command(&mut self, words: &[&[u8]]) {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, false);
        reply.array(words.len());
        words.iter().for_each(|word| reply.bulk(word));
        self.count += 1;
        self.bytes += out.len();
        self.pieces.extend(out.take().into_iter().map(Piece::Plain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;
    use darter_keyspace::Part;
    use std::collections::BTreeSet;

    /// Commands that are only an id.
    fn encoded(id: u64) -> Encoded {
        let bytes = format!("{id} ").into_bytes();
        let (count, len) = (1, bytes.len());
        let pieces = vec![Piece::Plain(darter_resp::Part::Bytes(bytes))];
        Encoded { databases: Some((0, 0)), count, bytes: len, pieces }
    }

    fn words(of: &Ordered) -> Vec<String> {
        let bytes: Vec<u8> =
            of.pieces.iter().flat_map(|piece| piece.plain().unwrap()).copied().collect();
        let text = String::from_utf8(bytes).unwrap().replace("*1\r\n$5\r\nMULTI\r\n", "( ");
        let text = text.replace("*1\r\n$4\r\nEXEC\r\n", ") ");
        let text = text.replace("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", "");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// A server in the model: cores take turns, and hand blocks over.
    struct Server {
        prng: Prng,
        now: u64,
        /// By core: what was handed over and not taken.
        lanes: Vec<Vec<Block>>,
        /// The ids of all blocks that were handed over, by time.
        handed: Vec<(u64, u64)>,
        /// By id: the ids that were handed over before its turn began.
        known: HashMap<u64, usize>,
        /// By core: ids in order.
        by_core: Vec<Vec<u64>>,
        /// The ids of each transaction.
        transactions: Vec<BTreeSet<u64>>,
        next: u64,
    }

    impl Server {
        fn new(seed: u64, cores: usize) -> Self {
            Self {
                prng: Prng::from_seed(seed),
                now: 1,
                lanes: (0..cores).map(|_| Vec::new()).collect(),
                handed: Vec::new(),
                known: HashMap::new(),
                by_core: vec![Vec::new(); cores],
                transactions: Vec::new(),
                next: 0,
            }
        }

        fn tick(&mut self) -> u64 {
            self.now += 1 + self.prng.below(3);
            self.now
        }

        fn id(&mut self, core: usize) -> u64 {
            self.next += 1;
            self.known.insert(self.next, self.handed.len());
            self.by_core[core].push(self.next);
            self.next
        }

        fn hand_over(&mut self, core: usize, blocks: Vec<(Option<u64>, Block)>) {
            let at = self.tick();
            for (id, block) in blocks {
                self.handed.extend(id.map(|id| (at, id)));
                self.lanes[core].push(block);
            }
        }

        /// A turn of a core, with some commands of its own.
        fn turn(&mut self, core: usize) {
            let stamp = self.tick();
            let blocks = (0..1 + self.prng.below(2)).map(|_| {
                let id = self.id(core);
                (Some(id), Block::new(stamp, Body::Alone(encoded(id))))
            });
            let blocks = blocks.collect();
            self.hand_over(core, blocks);
        }

        /// A transaction over several cores, with other turns and looks between its steps.
        fn transaction(&mut self, mut between: impl FnMut(&mut Self)) {
            let cores: Vec<usize> =
                (0..self.lanes.len()).filter(|_| self.prng.chance(70)).collect();
            let number = self.transactions.len() as u64 + 1;
            let part = Part { transaction: number, parts: cores.len() };
            self.transactions.push(BTreeSet::new());
            for &core in &cores {
                let (stamp, id) = (self.tick(), self.id(core));
                self.transactions[number as usize - 1].insert(id);
                let block = Block::new(stamp, Body::Of(part, encoded(id)));
                self.hand_over(core, vec![(Some(id), block)]);
                between(self);
            }
            for &core in &cores {
                let stamp = self.tick();
                self.hand_over(core, vec![(None, Block::new(stamp, Body::End(part)))]);
                between(self);
            }
        }
    }

    /// Asserts that the ids in this order are a state that the server was in.
    fn check(server: &Server, written: &[String]) {
        let ids: Vec<u64> = written.iter().filter_map(|word| word.parse().ok()).collect();
        let place: HashMap<u64, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        assert_eq!(place.len(), ids.len(), "one is written twice");
        let of = |id: u64| server.transactions.iter().position(|ids| ids.contains(&id));
        for id in &ids {
            for (_, cause) in &server.handed[..server.known[id]] {
                // A transaction moves to the place of its first end, before what its keys' locks
                // keep apart from it.
                if of(*cause).is_none() && of(*id).is_none() {
                    let at = place.get(cause).expect("a cause is missing");
                    assert!(*at < place[id], "{cause} is behind {id}");
                }
            }
        }
        for ids in &server.transactions {
            let there: Vec<usize> = ids.iter().filter_map(|id| place.get(id)).copied().collect();
            assert!(there.is_empty() || there.len() == ids.len(), "{ids:?} is written in part");
            let span = there.iter().max().zip(there.iter().min());
            assert!(
                span.is_none_or(|(last, first)| last - first + 1 == ids.len()),
                "{ids:?} is torn"
            );
        }
        for own in &server.by_core {
            let alone = own.iter().filter(|id| of(**id).is_none()).filter_map(|id| place.get(id));
            assert!(alone.is_sorted(), "a core's blocks changed places");
        }
    }

    fn look(server: &mut Server, merger: &mut Merger, written: &mut Vec<String>) {
        let now = server.now;
        if server.prng.chance(50) {
            let core = server.prng.below(server.lanes.len() as u64) as usize;
            server.turn(core); // It comes between the reading of the clock and the look.
        }
        for core in 0..server.lanes.len() {
            merger.take_in(core, std::mem::take(&mut server.lanes[core]));
        }
        let mut ordered = Ordered::default();
        let Advanced::To(stamp) = merger.advance(now, &mut ordered) else { panic!("no cut") };
        assert!(stamp <= now);
        written.extend(words(&ordered));
        let ids: BTreeSet<u64> = written.iter().filter_map(|word| word.parse().ok()).collect();
        for (at, id) in &server.handed {
            assert!(*at > stamp || ids.contains(id), "{id} of {at} is not written at {stamp}");
        }
        check(server, written);
    }

    #[test]
    fn every_batch_ends_at_a_state_of_the_server() {
        for seed in 0..300 {
            let cores = 1 + (seed % 4) as usize;
            let (mut server, mut merger) = (Server::new(seed, cores), Merger::new(cores));
            let mut written = Vec::new();
            for _ in 0..40 {
                let core = server.prng.below(cores as u64) as usize;
                match server.prng.below(4) {
                    0 => server.transaction(|server| {
                        let core = server.prng.below(cores as u64) as usize;
                        match server.prng.below(3) {
                            0 => server.turn(core),
                            1 => look(server, &mut merger, &mut written),
                            _ => {}
                        }
                    }),
                    1 => look(&mut server, &mut merger, &mut written),
                    _ => server.turn(core),
                }
            }
            server.tick();
            look(&mut server, &mut merger, &mut written);
            server.tick();
            look(&mut server, &mut merger, &mut written);
            let ids = written.iter().filter(|word| word.parse::<u64>().is_ok()).count();
            let late: usize = server.lanes.iter().map(Vec::len).sum();
            assert!(ids + late + 2 * cores >= server.next as usize, "{ids} of {}", server.next);
        }
    }

    #[test]
    fn an_act_of_all_cores_is_written_once_and_divides_its_transaction() {
        let part = Part { transaction: 1, parts: 2 };
        let mut merger = Merger::new(2);
        let block = Block::new;
        for (core, ids) in [(0, [1, 2]), (1, [3, 4])] {
            let bodies = [
                Body::Of(part, encoded(ids[0])),
                Body::ActOfAll(part, encoded(9)),
                Body::Of(part, encoded(ids[1])),
                Body::End(part),
            ];
            merger.take_in(core, bodies.map(|body| block(5 + core as u64, body)));
        }
        let mut ordered = Ordered::default();
        assert_eq!(merger.advance(10, &mut ordered), Advanced::To(10));
        assert_eq!(words(&ordered).join(" "), "( 1 3 9 2 4 )");
    }

    #[test]
    fn a_cut_divides_the_blocks_of_each_core() {
        let mut merger = Merger::new(2);
        let alone = |stamp, id| Block::new(stamp, Body::Alone(encoded(id)));
        let cut = |stamp| Block::new(stamp, Body::Cut(7));
        merger.take_in(0, [alone(1, 1), cut(3), alone(6, 2)]);
        merger.take_in(1, [alone(2, 3), alone(4, 4)]);
        let mut ordered = Ordered::default();
        assert_eq!(
            merger.advance(10, &mut ordered),
            Advanced::To(2),
            "what is behind the cut waits"
        );
        assert_eq!(words(&ordered).join(" "), "1 3 4");
        merger.take_in(1, [alone(5, 5), cut(5), alone(7, 6)]);
        let mut ordered = Ordered::default();
        assert_eq!(merger.advance(10, &mut ordered), Advanced::Cut(7));
        assert_eq!(words(&ordered).join(" "), "5");
        let mut ordered = Ordered::default();
        assert_eq!(merger.advance(10, &mut ordered), Advanced::To(10));
        assert_eq!(words(&ordered).join(" "), "2 6");
    }
}
