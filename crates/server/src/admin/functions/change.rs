//! Loads a library, and changes the libraries of all cores.
//!
//! The library's text is run, and the new map of all libraries is built, in slices and without
//! locks. Then the new map replaces the old one while all keys are locked, so that a snapshot
//! contains libraries and keys of the same instant. If another change was installed in the
//! meantime, the map is built again.

use crate::engine::scripts::functions;
use crate::engine::{Core, ServerCall};
use crate::libraries::{LibrariesChange, LibraryStep};
use darter_base::limits::CHUNK_BYTES;
use darter_command::{Answer, Refusal};
use darter_script::{Library, Registry, Source};
use darter_tx::{Access, Claim};
use std::rc::Rc;
use std::sync::Arc;

/// `FUNCTION LOAD [REPLACE] function-code`.
///
/// Reply: the library's name. Refusals: the first line, the text or a function is invalid; a
/// library of this name exists. Then nothing has changed. Source:
/// <https://redis.io/commands/function-load> (7.0.0).
pub(super) async fn load(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let mut replaces = false;
    while args.left() > 1 {
        if !args.option("REPLACE") {
            return Err(Refusal::quoting("ERR Unknown option given: ", args.bytes()?, ""));
        }
        replaces = true;
    }
    let text = copied(&call.core, args.bytes()?).await;
    let source = Arc::new(read(text)?);
    let old_of = |libraries: &Registry| match libraries.library(&source.name) {
        Some(_) if !replaces => Err(refuse(format!("Library '{}' already exists", source.name))),
        old => Ok(old.cloned()),
    };
    old_of(&call.core.admin.shared.libraries.current())?;
    let library = run(&call.core, &source).await?;
    change(&call, |libraries| {
        let gone = old_of(libraries)?.into_iter().collect();
        Ok(Change { gone, new: vec![Arc::clone(&library)], ..Change::default() })
    })
    .await?;
    Ok(call.answer(|reply| reply.bulk(source.name.as_bytes())))
}

/// Copies a text of any length, in portions.
async fn copied(core: &Core, text: &[u8]) -> Vec<u8> {
    let mut copy = Vec::with_capacity(text.len());
    for piece in text.chunks(CHUNK_BYTES) {
        copy.extend_from_slice(piece);
        core.tx.pause().await;
    }
    copy
}

/// Parses the first line of a library's text: engine and name.
pub(super) fn read(text: Vec<u8>) -> Result<Source, Refusal> {
    Source::read(text).map_err(refuse)
}

/// Runs the text of a library, which registers its functions.
pub(super) async fn run(core: &Rc<Core>, source: &Arc<Source>) -> Result<Arc<Library>, Refusal> {
    let functions = functions::load(core, source).await?;
    Ok(Arc::new(Library { source: Arc::clone(source), functions }))
}

/// A change of the libraries.
#[derive(Default)]
pub(super) struct Change {
    /// True if all existing libraries are removed.
    pub(super) is_flushed: bool,
    /// Libraries to remove.
    pub(super) gone: Vec<Arc<Library>>,
    /// Libraries to add after the removals.
    pub(super) new: Vec<Arc<Library>>,
}

impl Change {
    /// Converts the change into the form that is recorded in the log.
    fn to_act(&self) -> LibrariesChange {
        let flush = self.is_flushed.then_some(LibraryStep::Flush);
        let gone = self.gone.iter().map(|library| &library.source.name);
        let new = self.new.iter().map(|library| Arc::clone(&library.source));
        let steps = gone.map(|name| LibraryStep::Delete(name.clone()));
        LibrariesChange(flush.into_iter().chain(steps).chain(new.map(LibraryStep::Load)).collect())
    }
}

/// Changes the libraries of all cores. `plan` computes the change from the current libraries. If
/// these have changed before the result is installed, `plan` is called again. In INFO this counts
/// as one change of the data.
pub(super) async fn change(
    call: &ServerCall,
    plan: impl Fn(&Registry) -> Result<Change, Refusal>,
) -> Result<(), Refusal> {
    let core = &call.core;
    let shared = &core.admin.shared.libraries;
    loop {
        let base = shared.current();
        let planned = plan(&base)?;
        let act = planned.to_act();
        let next = Arc::new(made(core, &base, planned).await?);
        let claims = (0..core.tx.cores()).map(|id| (id, Claim::All(Access::Exclusive)));
        // Inside EXEC all keys are locked already: see `Command::locks_all`.
        let tx = call.within.as_ref().unwrap_or(&core.tx);
        let locked = tx.unless_busy(tx.lock(claims.collect())).await.map_err(Refusal::line)?;
        let is_done = shared.replace(&base, next);
        if is_done {
            let shard = &mut core.tx.home().shard;
            shard.db_mut(0).count_more(1);
            shard.record_act(Arc::new(act));
        }
        drop(locked);
        if is_done {
            return Ok(());
        }
    }
}

/// Builds the map of libraries that results from `change`.
async fn made(core: &Core, base: &Registry, change: Change) -> Result<Registry, Refusal> {
    let mut made = if change.is_flushed { Registry::default() } else { base.clone() };
    for library in &change.gone {
        let mut next = Some(0);
        while let Some(index) = next {
            next = made.unlink(library, index);
            core.tx.pause().await;
        }
    }
    for library in &change.new {
        let mut next = Some(0);
        while let Some(index) = next {
            let linked = made.link(library, index);
            next = linked.map_err(|name| refuse(format!("Function {name} already exists")))?;
            core.tx.pause().await;
        }
    }
    Ok(made)
}

/// An error with the code ERR and this text.
pub(super) fn refuse(text: impl Into<Vec<u8>>) -> Refusal {
    Refusal::Line([b"ERR ", &*text.into()].concat().into())
}
