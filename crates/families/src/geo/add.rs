//! GEOADD: ZADD with coordinates instead of scores.

use super::cell::Cell;
use super::options::point;
use crate::zset::{Notation, Only, Rule, add};
use darter_command::{Args, Cx, Flow, Refusal};

/// A member is written as its longitude, its latitude, and its name.
const POINTS: Notation =
    Notation { width: 3, pair: |args| Ok((Cell::score_of(point(args)?), args.bytes()?)) };

/// `GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member ...]`: adds
/// members to a sorted set; the score of each is the cell of its coordinates.
///
/// Reply, events and cost as those of ZADD. Refusals: `Syntax`, `NotAFloat`, coordinates out of
/// range, `WrongType`; in this order. Source: <https://redis.io/commands/geoadd> (3.2.0; options
/// 6.2.0).
pub(super) fn geoadd(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (mut nx, mut xx, mut counts_changed) = (false, false, false);
    loop {
        let option = match () {
            () if args.option("NX") => &mut nx,
            () if args.option("XX") => &mut xx,
            () if args.option("CH") => &mut counts_changed,
            () => break,
        };
        *option = true;
    }
    let is_whole = args.left() > 0 && args.left().is_multiple_of(POINTS.width);
    if !is_whole || nx && xx {
        return Err(Refusal::Syntax);
    }
    let only = match (nx, xx) {
        (true, _) => Some(Only::New),
        (_, true) => Some(Only::There),
        _ => None,
    };
    add(cx, &key, args, Rule { only, order: None, counts_changed, notation: POINTS })
}
