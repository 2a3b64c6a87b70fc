//! GEOSEARCH and its predecessors: the walk through the scores of some cells.
//!
//! A short search runs at once, in place. If it turns out to be long, it starts again from a cut,
//! in portions. The hits are collected first, because the reply's header has their count.

use super::areas;
use super::cell::{Cell, Window, point_of};
use super::earth::distance;
use super::hits::{Hits, Limit};
use super::options::{Center, Dialect, Query, Stores};
use super::reply::Form;
use super::shape::Shape;
use crate::lookup::find_value;
use crate::multi_input;
use crate::pending_values::PendingValues;
use crate::zset::ZSet;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_resp::{Output, Reply};
use darter_structs::sorted::{End, Place, Sorted, SortedEntry, SortedReader};
use std::ops::Range;

/// Entries tested in one portion, and the most that a search at once may test.
const LOOKED_AT: usize = 512;
const AT_ONCE: usize = 2 * LOOKED_AT;

/// `GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX
/// width height unit [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]`, or
/// `BYPOLYGON corners longitude latitude [longitude latitude ...]` instead of center and shape:
/// finds the members in a shape, on request sorted by their distance from its center. Units are
/// `m`, `km`, `ft` and `mi`. `COUNT` limits the reply to the nearest members; with `ANY`, to the
/// first found.
///
/// Reply: array of members; with further facts, an array for each: member, distance, score,
/// coordinates. A long search and its reply run in slices, from a cut. Refusals: `WrongType`; then
/// invalid arguments in their order; then contradicting arguments. Cost: O(entries in the cells
/// that the shape reaches + log(members)). Source: <https://redis.io/commands/geosearch> (6.2.0);
/// `BYPOLYGON`: <https://valkey.io/commands/geosearch> (9.0).
pub(super) const GEOSEARCH: Dialect = Dialect { center: Center::Option, stores: Stores::Never };

/// `GEORADIUS_RO key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC]`: as GEOSEARCH with `FROMLONLAT` and `BYRADIUS`.
///
/// Source: <https://redis.io/commands/georadius_ro> (3.2.10).
pub(super) const GEORADIUS_RO: Dialect =
    Dialect { center: Center::Coordinates, stores: Stores::Never };

/// `GEORADIUSBYMEMBER_RO key member radius unit [...]`: as GEOSEARCH with `FROMMEMBER` and `BYRADIUS`.
///
/// Source: <https://redis.io/commands/georadiusbymember_ro> (3.2.10).
pub(super) const GEORADIUSBYMEMBER_RO: Dialect =
    Dialect { center: Center::Member, stores: Stores::Never };

/// Searches a key on this core.
pub(super) fn here(cx: &mut Cx<'_>, mut args: Args<'_>, dialect: Dialect) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let set = find_value::<ZSet>(cx.db, cx.stats, &key)?;
    let query = Query::parse(args, dialect, set.as_deref())?;
    let form = query.form;
    let Some((set, mut search)) = set.zip(Search::new(query, Shows::Hits)) else {
        cx.reply.array(0);
        return Ok(Flow::Done);
    };
    if !search.at_once(set.entries()) {
        let walk = Walk::new(search.again(), set.reader());
        let stage = SearchStage::Searching(Box::new(walk));
        return Ok(Flow::Stream(Box::new(Show::new(stage, form))));
    }
    let mut hits = search.hits;
    hits.close();
    cx.reply.array(hits.len());
    let mut unsent = PendingValues::default();
    if form.pump(&mut cx.reply, &mut hits, &mut unsent) {
        let stage = SearchStage::Showing(hits);
        return Ok(Flow::Stream(Box::new(Show { unsent, ..Show::new(stage, form) })));
    }
    Ok(Flow::Done)
}

/// Searches a key on any core, from a cut.
pub(super) async fn anywhere(
    call: &Call,
    source: usize,
    dialect: Dialect,
) -> Result<Answer, Refusal> {
    let mut cuts = multi_input::anywhere::<ZSet>(call, source..source + 1).await?;
    let (set, mut args) = (cuts.pop().flatten(), call.args());
    args.seek(source + 1);
    let query = Query::parse(args, dialect, set.as_ref())?;
    let form = query.form;
    let Some((set, search)) = set.zip(Search::new(query, Shows::Hits)) else {
        return Ok(call.answer(|reply| reply.array(0)));
    };
    let stage = SearchStage::Searching(Box::new(Walk::new(search, set)));
    Ok(Answer::Stream(Output::default(), Box::new(Show::new(stage, form))))
}

/// The use of the hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    /// Hits are shown to the client.
    Hits,
    /// Hits are stored with these scores.
    Scores,
    Distances,
}

/// A search: its shape and the hits so far.
pub(super) struct Search {
    shape: Shape,
    /// The window around the shape: most members of the cells are outside, and are rejected
    /// quickly.
    window: Window,
    limit: Limit,
    needs_distances: bool,
    hits: Hits,
}

impl Search {
    /// A search that has not started. `None` if the key is missing.
    pub(super) fn new(query: Query, shows: Shows) -> Option<Self> {
        let (shape, limit) = (query.shape?, query.limit);
        let is_shown = query.form.distance || shows == Shows::Distances;
        let needs_distances = limit.order.is_some() || is_shown;
        let window = shape.window();
        Some(Self { shape, window, limit, needs_distances, hits: Hits::new(limit) })
    }

    /// Restarts the search from its beginning.
    fn again(self) -> Self {
        Self { hits: Hits::new(self.limit), ..self }
    }

    /// Tests an entry.
    #[inline]
    fn look(&mut self, entry: &SortedEntry<'_>) {
        if !self.window.contains(entry.score()) {
            return;
        }
        let point = point_of(entry.score());
        if self.shape.contains(point) {
            let needed = self.needs_distances;
            let distance = if needed { distance(self.shape.center, point) } else { 0.0 };
            self.hits.push(entry, distance);
        }
    }

    /// Searches a whole set at once. Returns false if that would take too long; then only a part
    /// was searched.
    fn at_once(&mut self, set: &Sorted) -> bool {
        let mut budget = AT_ONCE / self.shape.effort();
        for cell in areas::of(&self.shape) {
            let scores = cell.scores();
            for entry in set.range_from(Place::BeforeScore(scores.start)) {
                if entry.score() >= scores.end || self.hits.is_full() {
                    break;
                }
                if budget == 0 {
                    return false;
                }
                budget -= 1;
                self.look(&entry);
            }
        }
        true
    }
}

/// A search of a cut in portions.
pub(super) struct Walk {
    search: Search,
    /// Ranges of ranks still to search, the last first.
    areas: Vec<Range<usize>>,
    cut: ZSet,
    reader: Option<SortedReader>,
}

impl Walk {
    /// Starts a search of a cut.
    pub(super) fn new(search: Search, cut: ZSet) -> Self {
        let ranks = |cell: Cell| {
            let scores = cell.scores();
            let rank = |score: f64| cut.entries().rank_of(Place::BeforeScore(score));
            rank(scores.start)..rank(scores.end)
        };
        let areas = areas::of(&search.shape).into_iter().rev().map(ranks);
        let areas = areas.filter(|ranks| !ranks.is_empty()).collect();
        Self { search, areas, cut, reader: None }
    }

    /// Does the next portion. Returns true while there is more to do.
    pub(super) fn step(&mut self) -> bool {
        let Some(reader) = &mut self.reader else {
            let Some(ranks) = self.areas.pop() else { return false };
            let cut = self.cut.entries().reader();
            if self.areas.is_empty() {
                self.cut = ZSet::new(); // The reader frees the entries that it has read.
            }
            self.reader = Some(SortedReader::new(cut, ranks, End::Front));
            return true;
        };
        let search = &mut self.search;
        let portion = (LOOKED_AT / search.shape.effort()).max(1);
        let more = reader.next_slice(portion, &mut |entry| search.look(&entry));
        if !more {
            self.reader = None;
        }
        !self.search.hits.is_full() && (more || !self.areas.is_empty())
    }

    /// Returns the hits.
    pub(super) fn finish(self) -> Hits {
        let mut hits = self.search.hits;
        hits.close();
        hits
    }

    fn pinned_bytes(&self) -> usize {
        let unread = self.reader.as_ref().map_or(0, SortedReader::pinned_bytes);
        self.cut.pinned_bytes().max(unread) + self.search.hits.memory_bytes()
    }
}

/// A search whose result is then sent.
struct Show {
    stage: SearchStage,
    form: Form,
    unsent: PendingValues,
}

enum SearchStage {
    Searching(Box<Walk>),
    Showing(Hits),
    Done,
}

impl Show {
    fn new(stage: SearchStage, form: Form) -> Self {
        Self { stage, form, unsent: PendingValues::default() }
    }
}

impl Stream for Show {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        match std::mem::replace(&mut self.stage, SearchStage::Done) {
            SearchStage::Searching(mut walk) => {
                let more = walk.step();
                self.stage = if more {
                    SearchStage::Searching(walk)
                } else {
                    let hits = walk.finish();
                    reply.array(hits.len());
                    SearchStage::Showing(hits)
                };
                true
            }
            SearchStage::Showing(mut hits) => {
                let more = self.form.pump(reply, &mut hits, &mut self.unsent);
                self.stage = SearchStage::Showing(hits);
                more
            }
            SearchStage::Done => false,
        }
    }

    fn pinned_bytes(&self) -> usize {
        match &self.stage {
            SearchStage::Searching(walk) => walk.pinned_bytes(),
            SearchStage::Showing(hits) => hits.memory_bytes(),
            SearchStage::Done => 0,
        }
    }
}
