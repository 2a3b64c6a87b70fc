//! MEMORY STATS, DOCTOR, PURGE, MALLOC-STATS and HELP. MEMORY USAGE is in `families`, with the
//! commands on keys.

use super::databases::Portions;
use super::{container, info, now, task, tips};
use crate::engine::{Runner, ServerCall, SessionCx};
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use darter_tx::{Home, Tx};

const NONE: Flags = Flags::NONE;

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    container("memory", "4.0.0", NONE, Group::Server, "A container for memory diagnostics commands"),
    tips(task("memory|stats", "4.0.0", 2, NONE, Group::Server, |call| Box::pin(stats(call)), ("Show memory usage details", "O(1)")), &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    tips(task("memory|doctor", "4.0.0", 2, NONE, Group::Server, |call| Box::pin(doctor(call)), ("Outputs memory problems report", "O(1)")), &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"]),
    tips(task("memory|purge", "4.0.0", 2, NONE, Group::Server, |call| Box::pin(purge(call)), ("Ask the allocator to release memory", "Depends on how much memory is allocated, could be slow")), &["request_policy:all_shards", "response_policy:all_succeeded"]),
    now("memory|help", "4.0.0", 2, Flags::LOADING.and(Flags::STALE), Group::Server, help, ("Show helpful text about the different subcommands", "O(1)")),
];

fn int(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `MEMORY STATS`: uses Redis's names where the meaning is the same.
async fn stats(call: ServerCall) -> Result<Answer, Refusal> {
    let facts = info::gather(&call.core).await;
    let shared = &call.core.admin.shared;
    let totals = info::Totals::of(&facts);
    let (resident, _) = shared.machine.resident_bytes();
    let memory = info::Memory::of(shared, &totals);
    let peak = shared.used_peak.load(std::sync::atomic::Ordering::Relaxed).max(memory.used);
    let per_key = totals.bytes.checked_div(totals.keys).unwrap_or(0);
    let fields = [
        ("peak.allocated", peak),
        ("total.allocated", memory.used),
        ("startup.allocated", memory.startup),
        ("clients.slaves", 0),
        ("clients.normal", memory.of_clients()),
        ("lua.caches", shared.scripts.size().1),
        ("functions.caches", shared.libraries.current().bytes()),
        ("readers.pinned", memory.pinned),
        ("lazyfree.pending", memory.freeing),
        ("other.bytes", memory.other),
        ("overhead.total", memory.used - memory.dataset),
        ("keys.count", totals.keys),
        ("keys.bytes-per-key", per_key),
        ("dataset.bytes", memory.dataset),
        ("allocator.resident", resident),
    ];
    Ok(call.answer(|reply| {
        reply.map(fields.len());
        for (name, value) in fields {
            reply.bulk(name.as_bytes());
            reply.int(int(value));
        }
    }))
}

/// `MEMORY DOCTOR`.
async fn doctor(call: ServerCall) -> Result<Answer, Refusal> {
    /// With less data than this, the reply is that there is too little data to diagnose.
    const WORTH_BYTES: usize = 64 << 20;
    let facts = info::gather(&call.core).await;
    let totals = info::Totals::of(&facts);
    let (resident, _) = call.core.admin.shared.machine.resident_bytes();
    let text = if totals.bytes < WORTH_BYTES {
        "This instance holds too little data to be judged.".to_owned()
    } else if resident > totals.bytes * 3 / 2 {
        format!(
            "The process holds {resident} bytes for {} bytes of data: memory that was freed is \
             not back with the system yet. MEMORY PURGE asks for it.",
            totals.bytes
        )
    } else {
        "No memory issues were detected.".to_owned()
    };
    Ok(call.answer(|reply| reply.verbatim(*b"txt", text.as_bytes())))
}

/// `MEMORY PURGE`: compacts the key tables in slices, so that the allocator can return whole blocks
/// to the system.
async fn purge(call: ServerCall) -> Result<Answer, Refusal> {
    let mut portions = Portions::new(&call.core);
    while portions.on_each_core(compact).await.is_some() {}
    call.core.admin.shared.machine.purge();
    Ok(call.answer(|reply| reply.ok()))
}

/// Compacts the key tables of the databases `dbs` on this core.
async fn compact(tx: Tx, dbs: Vec<usize>) {
    /// The first round leaves holes where entries were; the second round fills the holes.
    const ROUNDS: usize = 2;
    for db in dbs.into_iter().flat_map(|db| [db; ROUNDS]) {
        let mut place = Some(0);
        while let Some(hash) = place {
            let step = move |home: &mut Home| home.shard.db_mut(db).compact(hash);
            place = tx.on(tx.core(), step).await;
            tx.pause().await;
        }
    }
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "MEMORY",
        &[
            "DOCTOR",
            "    Return memory problems reports.",
            "PURGE",
            "    Attempt to purge dirty pages for reclamation by the allocator.",
            "STATS",
            "    Return information about the memory usage of the server.",
            "USAGE <key> [SAMPLES <count>]",
            "    Return memory in bytes used by <key> and its value. Nested values are",
            "    sampled up to <count> times (default: 5, 0 means sample all).",
        ],
    );
    Ok(())
}
