//! EVAL, EVALSHA and their read-only variants: parsing the request, and finding the script.

use super::super::core::Core;
use super::super::entry::ServerCall;
use super::super::unit::admit::{ScriptGate, is_full};
use super::evaluation::{Callee, Evaluation};
use super::lend::Lent;
use super::machines::Kind;
use super::registry::NAME_LEN;
use super::run::evaluate;
use darter_command::{Answer, Refusal};
use darter_resp as resp;
use darter_script::{Flags, Naming, Script};
use std::rc::Rc;
use std::sync::Arc;

pub(crate) const NOSCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";
const TOO_MANY_KEYS: &str = "ERR Number of keys can't be greater than number of args";
const NEGATIVE_KEYS: &str = "ERR Number of keys can't be negative";

/// The variant of a command that runs a script.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    /// True if the request has the name (SHA1) of the script instead of its text.
    pub(crate) by_name: bool,
    /// True if the script may only read.
    pub(crate) is_read: bool,
}

/// The index of the script's text, or name, in the request.
const SCRIPT: usize = 1;
const COUNT: usize = 2;

/// `EVAL script numkeys [key ...] [arg ...]`, EVALSHA, EVAL_RO and EVALSHA_RO.
///
/// Reply: the result of the script. Refusals: the script is unknown, cannot be compiled, or must
/// not run now; errors of the script itself. Source: <https://redis.io/commands/eval> (2.6.0).
pub(crate) async fn eval(call: ServerCall, form: Form) -> Result<Answer, Refusal> {
    let core = &call.core;
    let args = resp::Args::owned(&call.request);
    if form.by_name && args.arg(SCRIPT).len() != NAME_LEN {
        return Err(Refusal::line(NOSCRIPT));
    }
    let keys = key_count(args, COUNT)?;
    let known = &core.admin.shared.scripts;
    let (script, is_new) = match form.by_name {
        true => (known.find(args.get(SCRIPT)).ok_or_else(|| Refusal::line(NOSCRIPT))?, false),
        false => {
            let name = name_of(core, args, SCRIPT).await;
            match known.find(name.as_bytes()) {
                Some(script) => (script, false),
                None => (new_script(core, args, SCRIPT, name).await?, true),
            }
        }
    };
    let evaluation = of_script(script.clone(), form, keys);
    if is_new && ScriptGate::of(&evaluation, is_full(core)).is_err() {
        // As in Redis, a script that must not run now is still compiled and cached.
        keep(core, &script).await?;
    }
    let to_keep = is_new.then_some(script);
    evaluate(&call, Evaluation { to_keep, ..evaluation }).await
}

/// The evaluation that a request asks for, if its script is cached and the search is short.
pub(crate) fn find(core: &Core, args: resp::Args<'_>, form: Form) -> Option<Evaluation> {
    /// Hashing a text of this length takes about 10 us.
    const TEXT_MAX: usize = 4096;
    let keys = key_count(args, COUNT).ok()?;
    let script = match form.by_name {
        true => recent_script(core, args.get(SCRIPT))?,
        false if args.arg(SCRIPT).len() > TEXT_MAX => return None,
        false => {
            let mut naming = Naming::default();
            naming.add(args.get(SCRIPT));
            recent_script(core, naming.finish().as_bytes())?
        }
    };
    Some(of_script(script, form, keys))
}

/// The cached script with this name, if there is one.
fn recent_script(core: &Core, name: &[u8]) -> Option<Script> {
    core.machines.recent.borrow_mut().find(name, &core.admin.shared.scripts)
}

fn of_script(script: Script, form: Form, keys: usize) -> Evaluation {
    let (name, flags, is_read) = (Arc::clone(&script.name), script.flags, form.is_read);
    let (callee, first_key) = (Callee::Script(script), COUNT + 1);
    Evaluation { callee, name, flags, is_read, first_key, keys, to_keep: None }
}

/// Parses the number of keys, the argument at `index`.
pub(super) fn key_count(args: resp::Args<'_>, index: usize) -> Result<usize, Refusal> {
    let count = darter_base::number::parse_i64(args.head(index)).ok_or(Refusal::NotAnInteger)?;
    let most = args.len() - index - 1;
    match usize::try_from(count) {
        Ok(count) if count <= most => Ok(count),
        Ok(_) => Err(Refusal::line(TOO_MANY_KEYS)),
        Err(_) => Err(Refusal::line(NEGATIVE_KEYS)),
    }
}

/// Computes the name (SHA1) of the script text at `index`.
async fn name_of(core: &Core, args: resp::Args<'_>, index: usize) -> Arc<str> {
    let mut naming = Naming::default();
    for piece in args.arg(index).pieces() {
        naming.add(piece);
        core.tx.pause().await;
    }
    naming.finish()
}

/// Makes a script of the text at `index`, without compiling it.
async fn new_script(
    core: &Core,
    args: resp::Args<'_>,
    index: usize,
    name: Arc<str>,
) -> Result<Script, Refusal> {
    let mut text = Vec::with_capacity(args.arg(index).len());
    for piece in args.arg(index).pieces() {
        text.extend_from_slice(piece);
        core.tx.pause().await;
    }
    Script::named(name, text).map_err(|line| Refusal::Line(line.into()))
}

/// Compiles the script text at `index`, and caches the script for EVALSHA. Returns its name.
pub(crate) async fn load(
    core: &Rc<Core>,
    request: &Arc<resp::Request>,
    index: usize,
) -> Result<Arc<str>, Refusal> {
    let args = resp::Args::owned(request);
    let name = name_of(core, args, index).await;
    if core.admin.shared.scripts.find(name.as_bytes()).is_some() {
        return Ok(name);
    }
    keep(core, &new_script(core, args, index, Arc::clone(&name)).await?).await?;
    Ok(name)
}

/// Compiles a script, and caches it for EVALSHA.
async fn keep(core: &Rc<Core>, script: &Script) -> Result<(), Refusal> {
    let mut lent = Lent::new(core, Kind::Script)?;
    lent.machine().begin_check(script.clone());
    lent.finish(core).await;
    let reply = lent.machine().take_reply().concat();
    if let Some(line) = reply.strip_prefix(b"-") {
        return Err(Refusal::Line(line.trim_ascii_end().to_vec().into()));
    }
    core.admin.shared.scripts.add(script);
    Ok(())
}

/// The flags that the first line of a request's script declares; they decide whether it may run.
/// `None` if there is no such line, or the script is not cached.
pub(crate) fn declared(core: &Core, args: resp::Args<'_>, form: Form) -> Option<Flags> {
    let flags = match form.by_name {
        true => recent_script(core, args.head(1))?.flags,
        false if args.head(1).starts_with(b"#!") => Script::flags_of(args.head(1)).ok()?,
        false => return None,
    };
    (!flags.has(Flags::COMPATIBLE)).then_some(flags)
}
