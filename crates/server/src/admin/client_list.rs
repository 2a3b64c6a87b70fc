//! The lines of CLIENT LIST and CLIENT INFO, and the filters of CLIENT LIST and CLIENT KILL.

use crate::engine::client_line::line_of;
use crate::engine::{Conn, Core, ServerCall, Session};
use darter_base::number;
use darter_command::{Args, Refusal};
use darter_tx::KeySet;
use std::sync::Arc;

/// One connection as CLIENT LIST shows it.
pub(super) struct Line {
    pub(super) id: u64,
    pub(super) text: String,
}

/// Builds the line of a connection. While a client's own command runs, its `conn` is `None`, and
/// all sizes are 0.
pub(super) fn line(core: &Core, session: &Session, conn: Option<&Conn>) -> Line {
    Line { id: session.id, text: line_of(core, session, conn) }
}

/// The client types by which LIST and KILL filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientKind {
    Normal,
    /// Not supported yet: matches no client.
    Replica,
    /// Clients with a subscription.
    PubSub,
    /// Not supported yet: matches no client.
    Master,
}

impl ClientKind {
    fn of(session: &Session) -> Self {
        if session.subscribed.is_any() { Self::PubSub } else { Self::Normal }
    }

    pub(super) fn parse(name: &[u8]) -> Result<Self, Refusal> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"slave" | b"replica" => Ok(Self::Replica),
            b"pubsub" => Ok(Self::PubSub),
            b"master" => Ok(Self::Master),
            _ => Err(Refusal::quoting("ERR Unknown client type '", name, "'")),
        }
    }
}

/// The arguments of CLIENT LIST.
#[derive(Clone)]
pub(super) struct ListQuery {
    ids: Option<Arc<KeySet>>,
    kind: Option<ClientKind>,
}

impl ListQuery {
    /// Parses `[TYPE type] [ID id [id ...]]`, in portions.
    pub(super) async fn read(call: &ServerCall) -> Result<Self, Refusal> {
        let (mut args, mut query) = (call.args(), Self { ids: None, kind: None });
        if args.left() == 2 && args.option("TYPE") {
            query.kind = Some(ClientKind::parse(args.word()?)?);
        } else if args.left() > 1 && args.option("ID") {
            let mut ids = KeySet::with_capacity(args.left());
            while let Some(word) = args.next() {
                ids.insert(id(word).ok_or(Refusal::line("ERR Invalid client ID"))?);
                call.core.tx.pause().await;
            }
            query.ids = Some(Arc::new(ids));
        }
        args.end()?;
        Ok(query)
    }

    /// True if clients are selected by id.
    pub(super) fn has_ids(&self) -> bool {
        self.ids.is_some()
    }

    pub(super) fn fits(&self, session: &Session) -> bool {
        self.ids.as_ref().is_none_or(|ids| ids.contains(session.id))
            && self.kind.is_none_or(|kind| kind == ClientKind::of(session))
    }
}

/// Parses a client id of CLIENT LIST; `None` if the word is not a number.
pub(super) fn id(word: &[u8]) -> Option<u64> {
    // Ids start at 1, so 0 and negative numbers match no client.
    number::parse_i64(word).map(|id| u64::try_from(id).unwrap_or(0))
}

/// The filters of CLIENT KILL: every filter that is set must match.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) ids: Option<Vec<u64>>,
    addr: Option<String>,
    laddr: Option<String>,
    user: Option<Vec<u8>>,
    kind: Option<ClientKind>,
    max_age_s: Option<u64>,
    pub(super) skip_me: bool,
}

impl Filter {
    /// The filter of the old form `CLIENT KILL addr`.
    pub(super) fn of_addr(addr: &[u8]) -> Self {
        let addr = Some(String::from_utf8_lossy(addr).into_owned());
        Self { addr, skip_me: false, ..Self::default() }
    }

    /// Parses the filters of CLIENT KILL, in any order: `ID id`, `TYPE type`, `USER user`, `ADDR
    /// addr`, `LADDR addr`, `SKIPME yes|no` and `MAXAGE seconds`.
    pub(super) fn parse(args: &mut Args<'_>) -> Result<Self, Refusal> {
        let mut filter = Self { skip_me: true, ..Self::default() };
        while let Ok(name) = args.word() {
            let value = args.word()?;
            let text = || Some(String::from_utf8_lossy(value).into_owned());
            match name.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number::parse_u64(value)
                        .filter(|&id| id > 0)
                        .ok_or_else(|| Refusal::line("ERR client-id should be greater than 0"))?;
                    filter.ids.get_or_insert_default().push(id);
                }
                b"type" => filter.kind = Some(ClientKind::parse(value)?),
                b"addr" => filter.addr = text(),
                b"laddr" => filter.laddr = text(),
                b"user" if value == b"default" => filter.user = Some(value.to_vec()),
                b"user" => return Err(Refusal::quoting("ERR No such user '", value, "'")),
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => filter.skip_me = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => filter.skip_me = false,
                b"maxage" => {
                    let age = number::parse_u64(value).filter(|&age| age > 0).ok_or_else(|| {
                        Refusal::line("ERR maxage is not an integer or out of range")
                    })?;
                    filter.max_age_s = Some(age);
                }
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(filter)
    }

    pub(super) fn fits(&self, session: &Session, now_ms: u64) -> bool {
        let age_s = now_ms.saturating_sub(session.created_ms) / 1_000;
        self.ids.as_ref().is_none_or(|ids| ids.contains(&session.id))
            && self.addr.as_ref().is_none_or(|addr| *addr == session.peer.remote)
            && self.laddr.as_ref().is_none_or(|addr| *addr == session.peer.local)
            && self.kind.is_none_or(|kind| kind == ClientKind::of(session))
            && self.max_age_s.is_none_or(|most| age_s >= most)
    }
}
