//! The line of a connection for CLIENT LIST, CLIENT INFO and the log.

use super::conn::{Conn, Session};
use super::core::Core;
use super::state::tracking::mode::Reads;

/// Builds the line of a connection. While a client's own command runs, its `conn` is `None`, and
/// all sizes are 0.
pub(crate) fn line_of(core: &Core, session: &Session, conn: Option<&Conn>) -> String {
    let now = core.now_ms();
    let seconds = |since: u64| now.saturating_sub(since) / 1_000;
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let command = session.last_command.map_or("NULL", |index| core.table.entries()[index].row.name);
    let sizes = conn.map(Conn::sizes).unwrap_or_default();
    let peak = conn.map_or(0, |conn| conn.lane.reply_peak());
    let text = format!(
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} db={} sub={} psub={} ssub={} \
         multi={} qbuf={} qbuf-free={} argv-mem={} multi-mem={} rbs={} rbp={peak} obl={} oll={} \
         omem={} tot-mem={} events=r cmd={command} user=default redir={} resp={}\n",
        session.id,
        session.peer.remote,
        session.peer.local,
        core.id() + 8,
        lossy(&session.name),
        seconds(session.created_ms),
        seconds(session.active_ms),
        flags(session, conn),
        session.db,
        session.subscribed.counts[0],
        session.subscribed.counts[1],
        session.subscribed.counts[2],
        session.queued.map_or(-1, |sizes| i64::try_from(sizes.count).unwrap_or(i64::MAX)),
        sizes.query,
        sizes.query_free,
        sizes.arguments,
        session.queued.map_or(0, |sizes| sizes.argument_bytes),
        sizes.reply_buffer,
        sizes.reply_bytes,
        sizes.output_parts,
        sizes.output,
        sizes.total,
        session.tracking.redirection(),
        if session.resp3 { 3 } else { 2 },
    );
    with_library(text, session)
}

/// Adds `lib-name` and `lib-ver` if the client has set them, as Redis 7.2 does.
fn with_library(text: String, session: &Session) -> String {
    if session.lib_name.is_empty() && session.lib_version.is_empty() {
        return text;
    }
    let name = String::from_utf8_lossy(&session.lib_name);
    let version = String::from_utf8_lossy(&session.lib_version);
    format!("{} lib-name={name} lib-ver={version}\n", text.trim_end())
}

fn flags(session: &Session, conn: Option<&Conn>) -> String {
    let mut flags = String::new();
    let marks = [
        (session.monitor, 'O'),
        (session.subscribed.is_any(), 'P'),
        (session.queued.is_some(), 'x'),
        (conn.is_some_and(|conn| conn.lane.is_blocked()), 'b'),
        (session.tracking.is_on, 't'),
        (session.tracking.is_broken, 'R'),
        (session.tracking.reads == Reads::Broadcast, 'B'),
        (session.watching.is_touched, 'd'),
        (session.closes_after_reply(), 'c'),
        (session.is_killed(), 'A'),
        (session.peer.local.ends_with(":0"), 'U'),
        (session.no_evict, 'e'),
        (session.no_touch, 'T'),
    ];
    flags.extend(marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark));
    if flags.is_empty() { "N".into() } else { flags }
}
