//! Pictures as SVG, written by hand: dark on white, text that never overlaps.
//!
//! - [`stall`]: latency over time of one stream, a panel per server, logarithmic, the command's
//!   span shaded. In an open loop a stall is a ramp: the first request waited longest.
//! - [`lines`]: a quantity over time, one line per server.
//! - [`bars`]: groups of bars, one bar per server.
//!
//! A stall picture has up to 100 000 samples; each pixel is drawn once, so a file stays small.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::summary::{Sample, time_text};

const WIDTH: f64 = 960.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const INK: &str = "#1f2933";
const GRID: &str = "#dde3e9";
const SHADE: &str = "#fdf0d5";
/// The colour of each server, in the order of the subjects.
const COLOURS: [&str; 4] = ["#c0392b", "#1f6fb2", "#2e8b57", "#7d5ba6"];

/// The part of a stall picture that shows one server.
pub(crate) struct Panel<'a> {
    /// The server's name.
    pub(crate) name: String,
    /// The samples of the other clients' stream.
    pub(crate) samples: &'a [Sample],
    /// When the command started, on the clock of the samples.
    pub(crate) begin_ns: u64,
    /// When the command ended.
    pub(crate) end_ns: u64,
    /// The longest wait, for the panel's heading.
    pub(crate) max_ns: u64,
}

struct Canvas {
    text: String,
    height: f64,
}

impl Canvas {
    fn new(height: f64, title: &str, note: &str) -> Canvas {
        let mut canvas = Canvas { text: String::new(), height };
        canvas.write(LEFT, 28.0, "start", 17, "600", INK, title);
        canvas.write(LEFT, 48.0, "start", 12, "400", "#52606d", note);
        canvas
    }

    #[expect(clippy::too_many_arguments, reason = "a line of text has that many properties")]
    fn write(
        &mut self,
        x: f64,
        y: f64,
        anchor: &str,
        size: u32,
        weight: &str,
        colour: &str,
        text: &str,
    ) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        let _ = writeln!(
            self.text,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}">{text}</text>"#
        );
    }

    fn rect(&mut self, x: f64, y: f64, width: f64, height: f64, colour: &str) {
        let _ = writeln!(
            self.text,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{colour}"/>"#
        );
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let _ = writeln!(
            self.text,
            r#"<path d="M{:.1} {:.1}L{:.1} {:.1}" stroke="{colour}" fill="none"/>"#,
            from.0, from.1, to.0, to.1
        );
    }

    fn finish(self) -> String {
        let height = self.height;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"Helvetica, Arial, sans-serif\">\n\
             <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.text
        )
    }

    /// Draws the grid and the labels of an axis in seconds below a panel.
    fn seconds_axis(&mut self, span: &Span, top: f64, bottom: f64) {
        for tick in ticks(span.from_s, span.to_s, 10) {
            let x = span.x(tick);
            self.line((x, top), (x, bottom), GRID);
            self.write(x, bottom + 17.0, "middle", 12, "400", INK, &number_text(tick));
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        self.write(middle, bottom + 36.0, "middle", 12, "400", INK, "seconds");
    }
}

/// The horizontal axis.
struct Span {
    from_s: f64,
    to_s: f64,
}

impl Span {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds - self.from_s) / (self.to_s - self.from_s) * (WIDTH - LEFT - RIGHT)
    }
}

/// About `count` round numbers between `from` and `to`.
fn ticks(from: f64, to: f64, count: u32) -> Vec<f64> {
    let rough = ((to - from) / f64::from(count)).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|one| one * power);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(power * 10.0);
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

fn number_text(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Draws the stall picture.
pub(crate) fn stall(title: &str, note: &str, panels: &[Panel<'_>]) -> String {
    const PANEL: f64 = 210.0;
    const GAP: f64 = 44.0;
    let height = 62.0 + panels.len() as f64 * (PANEL + GAP) + 50.0;
    let mut canvas = Canvas::new(height, title, note);
    let seconds = |ns: u64, panel: &Panel<'_>| (ns as f64 - panel.begin_ns as f64) / 1e9;
    let ends = panels.iter().flat_map(|panel| {
        let last = panel.samples.last().map_or(panel.end_ns, |sample| sample.due_ns);
        [seconds(last, panel), seconds(panel.end_ns, panel)]
    });
    let span = Span { from_s: -1.0, to_s: ends.fold(1.0, f64::max) };
    let decades = decades(panels);
    for (number, panel) in panels.iter().enumerate() {
        let top = 62.0 + GAP + number as f64 * (PANEL + GAP);
        let bottom = top + PANEL;
        let begin = span.x(0.0);
        let end = span.x(seconds(panel.end_ns, panel)).max(begin + 2.0);
        canvas.rect(begin, top, end - begin, PANEL, SHADE);
        let heading = format!(
            "{}: command {}, others' longest wait {}",
            panel.name,
            time_text(panel.end_ns - panel.begin_ns),
            time_text(panel.max_ns)
        );
        canvas.write(LEFT, top - 9.0, "start", 13, "600", COLOURS[number % 4], &heading);
        let y = |ns: f64| {
            let share = (ns.log10() - decades.0) / (decades.1 - decades.0);
            bottom - share.clamp(0.0, 1.0) * PANEL
        };
        latency_axis(&mut canvas, decades, y);
        for tick in ticks(span.from_s, span.to_s, 10) {
            canvas.line((span.x(tick), top), (span.x(tick), bottom), GRID);
        }
        if number + 1 == panels.len() {
            canvas.seconds_axis(&span, bottom, bottom);
        }
        let points = panel.samples.iter().map(|sample| {
            (span.x(seconds(sample.due_ns, panel)), y(sample.latency_ns.max(1) as f64))
        });
        dots(&mut canvas, points.filter(|point| point.0 >= LEFT), COLOURS[number % 4]);
        canvas.line((LEFT, top), (LEFT, bottom), INK);
        canvas.line((LEFT, bottom), (WIDTH - RIGHT, bottom), INK);
    }
    canvas.finish()
}

/// The powers of ten (in nanoseconds) between which all samples of all panels are.
fn decades(panels: &[Panel<'_>]) -> (f64, f64) {
    let all = || panels.iter().flat_map(|panel| panel.samples).map(|sample| sample.latency_ns);
    let low = all().min().unwrap_or(10_000).max(1_000) as f64;
    let high = all().max().unwrap_or(0).max(10_000_000) as f64;
    (low.log10().floor(), high.log10().ceil())
}

fn latency_axis(canvas: &mut Canvas, decades: (f64, f64), y: impl Fn(f64) -> f64) {
    for decade in decades.0 as i32..=decades.1 as i32 {
        let ns = 10f64.powi(decade);
        canvas.line((LEFT, y(ns)), (WIDTH - RIGHT, y(ns)), GRID);
        let (value, unit) = match decade {
            ..6 => (ns / 1e3, "µs"),
            6..9 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let label = format!("{} {unit}", number_text(value));
        canvas.write(LEFT - 8.0, y(ns) + 4.0, "end", 12, "400", INK, &label);
    }
}

/// Draws points as one path of dots, with each pixel once.
fn dots(canvas: &mut Canvas, points: impl Iterator<Item = (f64, f64)>, colour: &str) {
    let pixels: BTreeSet<(i32, i32)> =
        points.map(|point| (point.0.round() as i32, point.1.round() as i32)).collect();
    canvas.text.push_str("<path d=\"");
    for (x, y) in pixels {
        let _ = write!(canvas.text, "M{x} {y}h0");
    }
    let _ = writeln!(
        canvas.text,
        r#"" stroke="{colour}" stroke-width="2.2" stroke-linecap="round" fill="none"/>"#
    );
}

/// One line of [`lines`], or the bars of one colour in [`bars`].
pub(crate) struct Series {
    /// The server's name.
    pub(crate) name: String,
    /// For lines (seconds, value) in the order of time. For bars (group number, value).
    pub(crate) points: Vec<(f64, f64)>,
}

/// Draws a quantity over time.
pub(crate) fn lines(title: &str, unit: &str, series: &[Series]) -> String {
    let (top, bottom) = (96.0, 396.0);
    let mut canvas = Canvas::new(450.0, title, unit);
    let all = || series.iter().flat_map(|series| &series.points);
    let span = Span { from_s: 0.0, to_s: all().map(|point| point.0).fold(1.0, f64::max) };
    let y = value_axis(&mut canvas, &all().map(|point| point.1).collect::<Vec<_>>(), top, bottom);
    canvas.seconds_axis(&span, top, bottom);
    for (number, series) in series.iter().enumerate() {
        let mut path = String::new();
        for (seconds, value) in &series.points {
            let letter = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{letter}{:.1} {:.1}", span.x(*seconds), y(*value));
        }
        let _ = writeln!(
            canvas.text,
            r#"<path d="{path}" stroke="{}" stroke-width="2" fill="none"/>"#,
            COLOURS[number % 4]
        );
    }
    legend(&mut canvas, series);
    canvas.line((LEFT, bottom), (WIDTH - RIGHT, bottom), INK);
    canvas.finish()
}

/// Draws groups of bars. The name of a group may have two lines.
pub(crate) fn bars(title: &str, unit: &str, groups: &[String], series: &[Series]) -> String {
    let (top, bottom) = (96.0, 396.0);
    let mut canvas = Canvas::new(440.0, title, unit);
    let values: Vec<f64> =
        series.iter().flat_map(|series| &series.points).map(|point| point.1).collect();
    let y = value_axis(&mut canvas, &values, top, bottom);
    let step = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    let width = (step * 0.8 / series.len().max(1) as f64).min(48.0);
    for (number, group) in groups.iter().enumerate() {
        let middle = LEFT + (number as f64 + 0.5) * step;
        for (line, words) in group.split('\n').enumerate() {
            let below = bottom + 18.0 + line as f64 * 15.0;
            canvas.write(middle, below, "middle", 12, "400", INK, words);
        }
    }
    for (number, one) in series.iter().enumerate() {
        for (group, value) in &one.points {
            let middle = LEFT + (group + 0.5) * step;
            let x = middle + (number as f64 - series.len() as f64 / 2.0) * width;
            canvas.rect(x, y(*value), width - 2.0, bottom - y(*value), COLOURS[number % 4]);
        }
    }
    legend(&mut canvas, series);
    canvas.line((LEFT, bottom), (WIDTH - RIGHT, bottom), INK);
    canvas.finish()
}

/// Draws a linear axis from 0 to the highest value. Returns the scale from a value to a height.
fn value_axis(
    canvas: &mut Canvas,
    values: &[f64],
    top: f64,
    bottom: f64,
) -> impl Fn(f64) -> f64 + use<> {
    let high = values.iter().copied().fold(1e-9, f64::max) * 1.05;
    let y = move |value: f64| bottom - value / high * (bottom - top);
    for tick in ticks(0.0, high, 6) {
        canvas.line((LEFT, y(tick)), (WIDTH - RIGHT, y(tick)), GRID);
        canvas.write(LEFT - 8.0, y(tick) + 4.0, "end", 12, "400", INK, &number_text(tick));
    }
    y
}

/// Draws the servers' names in their colours, in a row above the picture.
fn legend(canvas: &mut Canvas, series: &[Series]) {
    let mut x = LEFT;
    for (number, series) in series.iter().enumerate() {
        canvas.rect(x, 66.0, 12.0, 12.0, COLOURS[number % 4]);
        canvas.write(x + 18.0, 77.0, "start", 13, "600", INK, &series.name);
        x += 48.0 + series.name.chars().count() as f64 * 8.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_round_numbers() {
        assert_eq!(ticks(-1.0, 9.0, 10), (-1..10).map(f64::from).collect::<Vec<_>>());
        assert_eq!(ticks(0.0, 61.0, 6), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(number_text(-0.0), "0");
        assert_eq!(number_text(0.25), "0.25");
    }

    #[test]
    fn the_stall_picture_names_its_servers_and_closes_its_tags() {
        let samples: Vec<Sample> =
            (0..4_000).map(|n| Sample { due_ns: n * 1_000_000, latency_ns: 50_000 + n }).collect();
        let panel = |name: &str| Panel {
            name: name.to_owned(),
            samples: &samples,
            begin_ns: 1_000_000_000,
            end_ns: 2_000_000_000,
            max_ns: 54_000,
        };
        let svg = stall("HGETALL", "note <1>", &[panel("redis-server"), panel("darter")]);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(svg.contains("redis-server: command 1.00 s") && svg.contains("note &lt;1>"));
        assert!(svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
