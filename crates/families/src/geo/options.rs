//! The arguments of a search.
//!
//! Redis looks the key up first, then reads the arguments in their order, so the first mistake
//! decides. Contradictions between arguments are checked last. If the key is missing, arguments
//! that name a member are not checked.

use super::cell::point_of;
use super::earth::{LATITUDES, LONGITUDES, Point};
use super::hits::{Limit, Order};
use super::reply::Form;
use super::shape::{Outline, Shape};
use crate::zset::ZSet;
use darter_base::number::parse_i64;
use darter_base::score;
use darter_command::{Args, Refusal};

/// Most corners of a polygon, and most bytes of all of them: corners are read in one step.
const CORNERS_MAX: usize = 1_024;
const CORNERS_BYTES: usize = 64 * 1024;
/// Longer words are refused as numbers, because parsing many of them would take long.
const NUMBER_BYTES: usize = 512;
/// Bounds the number of options: repeats are legal, and parsing must stay within a slice.
const OPTIONS_MAX: usize = 64;

/// A command that searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) center: Center,
    pub(super) stores: Stores,
}

/// The source of the center in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Center {
    /// The center is in an option, and the shape in another.
    Option,
    /// The center is in the first arguments, as coordinates or as a member; the radius follows.
    Coordinates,
    Member,
}

/// Whether the result is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stores {
    Never,
    /// The destination is at the key of an option.
    ByOption,
    Always,
}

/// A search as a request describes it.
#[derive(Clone, Debug)]
pub(super) struct Query {
    /// `None` if the key is missing.
    pub(super) shape: Option<Shape>,
    pub(super) limit: Limit,
    pub(super) form: Form,
    /// Index of the key, given by an option, at which the result is stored.
    pub(super) target: Option<usize>,
    /// The stored scores are distances.
    pub(super) stores_distances: bool,
}

impl Query {
    /// Reads the arguments after the key of `set`, which is `None` if the key is missing.
    pub(super) fn parse(
        mut args: Args<'_>,
        dialect: Dialect,
        set: Option<&ZSet>,
    ) -> Result<Self, Refusal> {
        let name = args.all().head(0);
        let mut read = Read::new(dialect, set);
        match dialect.center {
            Center::Option => {}
            Center::Member if set.is_none() => args.seek(args.position() + 3),
            Center::Coordinates | Center::Member => {
                let is_member = dialect.center == Center::Member;
                let center = if is_member { read.member(&mut args) } else { point(&mut args) };
                (read.center, read.origin) = (Some(center?), Some(Origin::Place));
                read.circle(&mut args)?;
            }
        }
        for _ in 0..OPTIONS_MAX {
            if args.left() == 0 {
                return read.finish(name);
            }
            read.option(&mut args)?;
        }
        Err(Refusal::Syntax)
    }
}

/// The option that gave the center.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Member,
    Place,
    /// The middle of a polygon.
    Polygon,
}

/// The options of a request, as read so far.
struct Read<'a> {
    dialect: Dialect,
    set: Option<&'a ZSet>,
    origin: Option<Origin>,
    center: Option<Point>,
    outline: Option<Outline>,
    /// The length of the shape's unit, in metres.
    unit: f64,
    order: Option<Order>,
    count: Option<usize>,
    is_any: bool,
    form: Form,
    target: Option<usize>,
    stores_distances: bool,
}

impl<'a> Read<'a> {
    fn new(dialect: Dialect, set: Option<&'a ZSet>) -> Self {
        Self {
            dialect,
            set,
            origin: None,
            center: None,
            outline: None,
            unit: 1.0,
            order: None,
            count: None,
            is_any: false,
            form: Form::default(),
            target: None,
            stores_distances: false,
        }
    }

    /// Reads one option.
    fn option(&mut self, args: &mut Args<'_>) -> Result<(), Refusal> {
        let word = args.word()?;
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("WITHDIST") => self.form.distance = true,
            () if is("WITHHASH") => self.form.hash = true,
            () if is("WITHCOORD") => self.form.coordinates = true,
            () if is("ANY") => self.is_any = true,
            () if is("ASC") => self.order = Some(Order::Nearest),
            () if is("DESC") => self.order = Some(Order::Farthest),
            () if is("COUNT") && args.left() > 0 => self.count = Some(count(args)?),
            () if self.dialect.stores == Stores::ByOption && args.left() > 0 => {
                self.stores_distances = is("STOREDIST");
                if !self.stores_distances && !is("STORE") {
                    return Err(Refusal::Syntax);
                }
                self.target = Some(args.position());
                args.bytes()?;
            }
            () if self.dialect.stores == Stores::Always && is("STOREDIST") => {
                self.stores_distances = true;
            }
            () if self.dialect.center == Center::Option => self.shape(args, word)?,
            () => return Err(Refusal::Syntax),
        }
        Ok(())
    }

    /// Reads the option `word`, which gives the center or the shape.
    fn shape(&mut self, args: &mut Args<'_>, word: &[u8]) -> Result<(), Refusal> {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let is_from = |origin| self.origin.is_none_or(|other| other == origin);
        let outline = self.outline.as_ref();
        let left = args.left();
        match () {
            () if is("FROMMEMBER") && left > 0 && is_from(Origin::Member) => {
                self.origin = Some(Origin::Member);
                self.center = match self.set {
                    Some(_) => Some(self.member(args)?),
                    None => args.bytes().map(|_| None)?,
                };
            }
            () if is("FROMLONLAT") && left > 1 && is_from(Origin::Place) => {
                (self.origin, self.center) = (Some(Origin::Place), Some(point(args)?));
            }
            () if is("BYRADIUS") && left > 1 && outline.is_none_or(Outline::is_circle) => {
                self.circle(args)?;
            }
            () if is("BYBOX") && left > 2 && outline.is_none_or(Outline::is_box) => {
                let width = length(args, "ERR need numeric width")?;
                let height = length(args, "ERR need numeric height")?;
                if width < 0.0 || height < 0.0 {
                    return Err(Refusal::line("ERR height or width cannot be negative"));
                }
                self.unit = unit(args)?;
                let (width, height) = (width * self.unit, height * self.unit);
                self.outline = Some(Outline::Box { width, height });
            }
            () if is("BYPOLYGON") && left > 1 && self.origin.is_none() && outline.is_none() => {
                self.unit = 1.0;
                self.outline = Some(Outline::Polygon { corners: corners(args)? });
                // A placeholder: a polygon has a center of its own.
                let anywhere = Point { longitude: 0.0, latitude: 0.0 };
                (self.origin, self.center) = (Some(Origin::Polygon), Some(anywhere));
            }
            () => return Err(Refusal::Syntax),
        }
        Ok(())
    }

    /// Reads a member. Returns its coordinates.
    fn member(&self, args: &mut Args<'_>) -> Result<Point, Refusal> {
        let member = args.bytes()?;
        let score = self.set.and_then(|set| set.score(member));
        score.map(point_of).ok_or(Refusal::line("ERR could not decode requested zset member"))
    }

    /// Reads a radius and its unit.
    fn circle(&mut self, args: &mut Args<'_>) -> Result<(), Refusal> {
        let radius = length(args, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err(Refusal::line("ERR radius cannot be negative"));
        }
        self.unit = unit(args)?;
        self.outline = Some(Outline::Circle { radius: radius * self.unit });
        Ok(())
    }

    /// Checks combinations of options. `name` is the command's name as sent by the client.
    fn finish(self, name: &[u8]) -> Result<Query, Refusal> {
        let is_option = self.dialect.center == Center::Option;
        if self.form.is_nested() && (self.target.is_some() || self.dialect.stores == Stores::Always)
        {
            let store = if is_option { "GEOSEARCHSTORE" } else { "STORE option in GEORADIUS" };
            return Err(Refusal::line(format!(
                "ERR {store} is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            )));
        }
        if is_option && self.origin.is_none() {
            let line = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(Refusal::quoting(line, name, ""));
        }
        if is_option && self.outline.is_none() {
            let line = "ERR exactly one of BYRADIUS and BYBOX can be specified for ";
            return Err(Refusal::quoting(line, name, ""));
        }
        if self.is_any && self.count.is_none() {
            return Err(Refusal::line("ERR the ANY argument requires COUNT argument"));
        }
        // COUNT without ANY returns the nearest hits.
        let is_sorted = self.count.is_some() && !self.is_any;
        let order = self.order.or(is_sorted.then_some(Order::Nearest));
        let shape = self.center.zip(self.outline);
        Ok(Query {
            shape: shape.map(|(center, outline)| Shape::new(center, outline)),
            limit: Limit { order, most: self.count.unwrap_or(usize::MAX), is_any: self.is_any },
            form: Form { unit: self.unit, ..self.form },
            target: self.target,
            stores_distances: self.stores_distances,
        })
    }
}

/// Reads coordinates.
pub(super) fn point(args: &mut Args<'_>) -> Result<Point, Refusal> {
    let mut next = || number(args, Refusal::NotAFloat);
    let (longitude, latitude) = (next()?, next()?);
    if !LONGITUDES.contains(longitude) || !LATITUDES.contains(latitude) {
        return Err(Refusal::line(format!(
            "ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"
        )));
    }
    Ok(Point { longitude, latitude })
}

fn length(args: &mut Args<'_>, refusal: &'static str) -> Result<f64, Refusal> {
    number(args, Refusal::line(refusal))
}

fn number(args: &mut Args<'_>, refusal: Refusal) -> Result<f64, Refusal> {
    let word = args.word()?;
    let number = if word.len() > NUMBER_BYTES { None } else { score::parse(word) };
    number.ok_or(refusal)
}

/// Reads a unit. Returns its length in metres.
pub(super) fn unit(args: &mut Args<'_>) -> Result<f64, Refusal> {
    const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let word = args.word()?;
    let found = UNITS.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
    let refusal = "ERR unsupported unit provided. please use M, KM, FT, MI";
    found.map(|(_, metres)| metres).ok_or(Refusal::line(refusal))
}

fn count(args: &mut Args<'_>) -> Result<usize, Refusal> {
    let count = usize::try_from(args.int()?).ok().filter(|count| *count > 0);
    count.ok_or(Refusal::line("ERR COUNT must be > 0"))
}

/// Reads the number of a polygon's corners, and their coordinates.
fn corners(args: &mut Args<'_>) -> Result<Box<[Point]>, Refusal> {
    let count = parse_i64(args.word()?).and_then(|count| i32::try_from(count).ok());
    let count = count.ok_or(Refusal::line("ERR invalid number of vertices"))?;
    let count = usize::try_from(count).unwrap_or(0);
    if count < 3 || count > args.left() / 2 {
        return Err(Refusal::line("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"));
    }
    if count > CORNERS_MAX {
        return Err(Refusal::line(format!(
            "ERR GEOSEARCH BYPOLYGON must have at most {CORNERS_MAX} vertices"
        )));
    }
    let words = args.position()..args.position() + 2 * count;
    if words.map(|at| args.all().arg(at).len()).sum::<usize>() > CORNERS_BYTES {
        return Err(Refusal::NotAFloat);
    }
    (0..count).map(|_| point(args)).collect()
}
