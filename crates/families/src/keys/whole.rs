//! DBSIZE, FLUSHDB, FLUSHALL, SWAPDB: commands on whole databases.

use darter_base::number;
use darter_command::{Answer, Args, Call, Refusal};
use darter_keyspace::{Db, Object, Shard};
use darter_structs::table::{LiveCount, Table};
use darter_tx::{Access, Home};

/// Segments that are searched for expired keys in one step.
const SEGMENTS_AT_ONCE: usize = 8;

/// The number of keys on one core.
enum Size {
    /// The number of live keys.
    Known(usize),
    /// A cut to be counted, and the time of the cut.
    Uncounted(Table<Object>, u64),
}

impl Size {
    fn of(db: &Db) -> Self {
        match db.keys().live_len(db.now(), SEGMENTS_AT_ONCE) {
            Some(count) => Self::Known(count),
            None => Self::Uncounted(db.keys().clone(), db.now()),
        }
    }
}

/// `DBSIZE`: the number of keys of the database, on all cores at one instant.
///
/// Reply: integer. Refusals: none. Cost: O(cores); in slices if very many keys have just expired.
/// Source: <https://redis.io/commands/dbsize> (1.0.0).
pub(super) async fn dbsize(call: Call) -> Result<Answer, Refusal> {
    let locked = call.lock_all(Access::Cut).await;
    let db = call.db;
    let measure = |_| move |home: &mut Home| Size::of(home.shard.db(db));
    let sizes = call.tx.on_each(0..call.tx.cores(), measure).await;
    drop(locked);
    let mut total = 0;
    for size in sizes {
        match size {
            Size::Known(count) => total += count,
            Size::Uncounted(cut, now) => {
                let mut living = LiveCount::new(cut, now);
                while living.next_slice(SEGMENTS_AT_ONCE) {
                    call.tx.pause().await;
                }
                total += living.count();
            }
        }
    }
    Ok(call.answer(|reply| reply.count(total)))
}

/// `FLUSHDB [ASYNC | SYNC]`: removes all keys of the database.
///
/// With either option, the keys are gone before the reply is sent, and their memory is freed in
/// slices. Reply: `OK`. Refusals: `Syntax`. Cost: O(cores). Source:
/// <https://redis.io/commands/flushdb> (1.0.0).
pub(super) async fn flushdb(call: Call) -> Result<Answer, Refusal> {
    let db = call.db;
    flush(call, move |shard| shard.db_mut(db).flush()).await
}

/// `FLUSHALL [ASYNC | SYNC]`: removes all keys of all databases. Otherwise as FLUSHDB.
/// Source: <https://redis.io/commands/flushall> (1.0.0).
pub(super) async fn flushall(call: Call) -> Result<Answer, Refusal> {
    flush(call, Shard::flush).await
}

async fn flush(
    call: Call,
    flush: impl Fn(&mut Shard) + Copy + Send + 'static,
) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let _ = args.option("ASYNC") || args.option("SYNC");
    args.end()?;

    let locked = call.lock_all(Access::Exclusive).await;
    let flush = |_| move |home: &mut Home| flush(&mut home.shard);
    call.tx.on_each(0..call.tx.cores(), flush).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// `SWAPDB index1 index2`: exchanges two databases for all clients, atomically.
///
/// Reply: `OK`. Refusals: indexes out of range. Cost: O(cores).
/// Source: <https://redis.io/commands/swapdb> (4.0.0).
pub(super) async fn swapdb(call: Call) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let one = index(&mut args, "ERR invalid first DB index")?;
    let other = index(&mut args, "ERR invalid second DB index")?;
    args.end()?;
    let databases = call.tx.home().shard.databases();
    let within = |index: i32| usize::try_from(index).ok().filter(|index| *index < databases);
    let out_of_range = || Refusal::line("ERR DB index is out of range");
    let one = within(one).ok_or_else(out_of_range)?;
    let other = within(other).ok_or_else(out_of_range)?;

    let locked = call.lock_all(Access::Exclusive).await;
    let swap = |core| {
        move |home: &mut Home| {
            home.shard.swap(one, other);
            // Counts as one change over all cores.
            home.shard.db_mut(0).count_more(usize::from(core == 0));
        }
    };
    call.tx.on_each(0..call.tx.cores(), swap).await;
    drop(locked);
    Ok(call.answer(|reply| reply.ok()))
}

/// Takes the next argument as a C `int`.
fn index(args: &mut Args<'_>, refusal: &'static str) -> Result<i32, Refusal> {
    let value = number::parse_i64(args.bytes()?).and_then(|value| i32::try_from(value).ok());
    value.ok_or(Refusal::line(refusal))
}
