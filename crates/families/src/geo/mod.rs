//! Geo commands: sorted sets whose scores are numbers of cells in a grid over the world.
//!
//! A cell of a coarser grid is a range of scores, so a search reads some ranges and computes
//! distances for the members there. The formulas and their order are Redis's, because every digit
//! of a reply depends on them. Most distances need not be computed exactly (`earth`).
//!
//! | file      | holds                                                                 |
//! |-----------|-----------------------------------------------------------------------|
//! | `cell`    | the grid: places, scores, neighbours; `earth`: distances              |
//! | `add`     | GEOADD; `member`: GEOPOS, GEOHASH, GEODIST                            |
//! | `search`  | GEOSEARCH, the `_RO` forms; `options`: their arguments                |
//! | `shape`   | circles, boxes, polygons; `areas`: the cells that one reaches         |
//! | `hits`    | the hits of a search, in order; `reply`, `text`: their encoding       |
//! | `store`   | GEOSEARCHSTORE, GEORADIUS, GEORADIUSBYMEMBER                          |
//!
//! Not here: the type. See `zset`.

mod add;
mod areas;
mod cell;
mod earth;
mod hits;
mod member;
mod options;
mod reply;
mod search;
mod shape;
mod store;
mod text;

use crate::rows::{GROW, READ, in_group, point as row, range, row as multi, task};
use darter_command::{Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, specs};

const GROUP: Group = Group::Type { name: "geo", category: "@geo" };

const GROW_MOVABLE: Flags = GROW.and(Flags::MOVABLEKEYS);

const STORE: Keys = Keys(&[range(1, 1, KeyFlags::OW_UPDATE), range(2, 2, KeyFlags::RO_ACCESS)]);
const BY_OPTION: Keys =
    Keys(&[range(1, 1, KeyFlags::RO_ACCESS), option("STORE", 6), option("STOREDIST", 6)]);
const BY_OPTION_OF_MEMBER: Keys =
    Keys(&[range(1, 1, KeyFlags::RO_ACCESS), option("STORE", 5), option("STOREDIST", 5)]);

const fn option(word: &'static str, from: usize) -> KeySpec {
    KeySpec::new(Place::Keyword { word, from }, KeyFlags::OW_UPDATE)
}

const UPPERCASE: (&str, &str) = ("7.0.0", "Added support for uppercase unit names.");
const ANY: (&str, &str) = ("6.2.0", "Added the `ANY` option for `COUNT`.");

const O_ADD: &str =
    "O(log(N)) for each item added, where N is the number of elements in the sorted set.";
const O_HASH: &str =
    "O(log(N)) for each member requested, where N is the number of elements in the sorted set.";
const O_LOG: &str = "O(log(N))";
const O_POS: &str = "O(N) where N is the number of members requested.";
const O_RADIUS: &str = "O(N+log(M)) where N is the number of elements inside the bounding box of the circular area delimited by center and radius and M is the number of items inside the index.";
const O_SEARCH: &str = "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as the filter and M is the number of items inside the shape";

/// The rows of this family.
#[rustfmt::skip] // A table: one row a command, columns aligned.
pub(crate) const TABLE: &[Command] = &in_group(GROUP, [
    //    name                     since   args flags       keys                   run
    row("geoadd",                 "3.2.0", -5, GROW,         specs::ONE_RW_UPDATE, add::geoadd).doc("Add one or more geospatial items in the geospatial index represented using a sorted set", O_ADD).elements_from(4).syntax("key [condition: NX | XX]@6.2.0 [CH=change]@6.2.0 (longitude_latitude_member: longitude:double latitude:double member)...").history(&[("6.2.0", "Added the `CH`, `NX` and `XX` options.")]),
    row("geodist",                "3.2.0", -4, READ,         specs::ONE_RO_ACCESS, member::geodist).doc("Returns the distance between two members of a geospatial index", O_LOG).elements().syntax("key member1 member2 [unit: M | KM | FT | MI]"),
    row("geohash",                "3.2.0", -2, READ,         specs::ONE_RO_ACCESS, member::geohash).doc("Returns members of a geospatial index as standard geohash strings", O_HASH).elements().syntax("key member..."),
    row("geopos",                 "3.2.0", -2, READ,         specs::ONE_RO_ACCESS, member::geopos).doc("Returns longitude and latitude of members of a geospatial index", O_POS).elements().syntax("key member..."),
    multi("georadius",            "3.2.0", -6, GROW_MOVABLE, BY_OPTION,            task(|call| Box::pin(store::georadius(call, store::GEORADIUS)))).doc("Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a point", O_RADIUS).deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument").syntax("key longitude:double latitude:double radius:double (unit: M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count: COUNT count:integer [ANY]@6.2.0] [order: ASC | DESC] [STORE key] [STOREDIST key]").history(&[ANY, UPPERCASE]),
    row("georadius_ro",          "3.2.10", -6, READ,         specs::ONE_RO_ACCESS, |cx, args| search::here(cx, args, search::GEORADIUS_RO)).doc("A read-only variant for GEORADIUS", O_RADIUS).deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument").syntax("key longitude:double latitude:double radius:double (unit: M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count: COUNT count:integer [ANY]@6.2.0] [order: ASC | DESC]").history(&[ANY]),
    multi("georadiusbymember",    "3.2.0", -5, GROW_MOVABLE, BY_OPTION_OF_MEMBER,  task(|call| Box::pin(store::georadius(call, store::GEORADIUSBYMEMBER)))).doc("Query a sorted set representing a geospatial index to fetch members matching a given maximum distance from a member", O_RADIUS).deprecated("6.2.0", "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments").syntax("key member radius:double (unit: M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count: COUNT count:integer [ANY]] [order: ASC | DESC] [STORE key] [STOREDIST key]").history(&[UPPERCASE]),
    row("georadiusbymember_ro",  "3.2.10", -5, READ,         specs::ONE_RO_ACCESS, |cx, args| search::here(cx, args, search::GEORADIUSBYMEMBER_RO)).doc("A read-only variant for GEORADIUSBYMEMBER", O_RADIUS).deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments").syntax("key member radius:double (unit: M | KM | FT | MI) [WITHCOORD] [WITHDIST] [WITHHASH] [count: COUNT count:integer [ANY]] [order: ASC | DESC]"),
    row("geosearch",              "6.2.0", -7, READ,         specs::ONE_RO_ACCESS, |cx, args| search::here(cx, args, search::GEOSEARCH)).doc("Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle.", O_SEARCH).syntax("key (from: FROMMEMBER member | FROMLONLAT(longitude_latitude: longitude:double latitude:double)) (by: (circle: BYRADIUS radius:double (unit: M | KM | FT | MI)) | (box: BYBOX width:double height:double (unit: M | KM | FT | MI))) [order: ASC | DESC] [count: COUNT count:integer [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]").history(&[UPPERCASE]),
    multi("geosearchstore",       "6.2.0", -8, GROW,         STORE,                task(|call| Box::pin(store::geosearchstore(call)))).doc("Query a sorted set representing a geospatial index to fetch members inside an area of a box or a circle, and store the result in another key.", O_SEARCH).syntax("destination:key source:key (from: FROMMEMBER member | FROMLONLAT(longitude_latitude: longitude:double latitude:double)) (by: (circle: BYRADIUS radius:double (unit: M | KM | FT | MI)) | (box: BYBOX width:double height:double (unit: M | KM | FT | MI))) [order: ASC | DESC] [count: COUNT count:integer [ANY]] [STOREDIST]").history(&[UPPERCASE]),
]);
