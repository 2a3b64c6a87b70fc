//! JSON lines: keys and commands as text. The schema is docs/formats/json-lines.md.

use super::resp;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use darter_base::UnixMillis;
use darter_rdb::{Item, Product};
use serde_json::{Value, json};

/// The name of the format in the first line.
pub(crate) const FORMAT: &str = "darter-json-lines";
/// The version of the format.
pub(crate) const VERSION: u64 = 1;
/// A line is full when it has about this many bytes.
const LINE_BYTES: usize = 64 * 1024;
/// The number of bytes of a payload in one item.
const PAYLOAD_BYTES: usize = 24 * 1024;

/// Appends lines to a buffer, which the caller empties.
#[derive(Debug, Default)]
pub(crate) struct LineWriter {
    /// The bytes to write.
    pub(crate) out: Vec<u8>,
    /// The bytes of the current line.
    line_bytes: usize,
    items: u64,
    payload: Vec<u8>,
}

impl LineWriter {
    /// Appends the first line of a file.
    pub(crate) fn start(&mut self, product: Product, version: u16) {
        let product = product_name(product);
        let line = json!({
            "format": FORMAT, "version": VERSION, "product": product, "rdb": version,
        });
        self.whole(&line);
    }

    /// Appends a library of functions.
    pub(crate) fn function(&mut self, code: &[u8]) {
        self.whole(&json!({ "function": of_bytes(code) }));
    }

    /// Appends a command.
    pub(crate) fn command(&mut self, bytes: &[u8]) {
        let words: Vec<Value> = resp::words(bytes).map(of_bytes).collect();
        self.whole(&json!({ "command": words }));
    }

    /// Begins a key.
    pub(crate) fn key(
        &mut self,
        database: u32,
        key: &[u8],
        kind: &str,
        deadline: Option<UnixMillis>,
    ) {
        let mut head = json!({ "db": database, "key": of_bytes(key), "type": kind });
        if let Some(at) = deadline {
            head["deadline_ms"] = json!(at);
        }
        let head = head.to_string();
        self.out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
        self.open(",\"items\":[");
    }

    /// Notes that the items are parts of the bytes of the file, with this type number.
    pub(crate) fn payload(&mut self, number: u8, product: Product, version: u16, bytes: u64) {
        self.out.truncate(self.out.len() - ",\"items\":[".len());
        let payload = json!({
            "number": number, "product": product_name(product), "rdb": version, "bytes": bytes,
        });
        let text = format!(",\"payload\":{payload}");
        self.out.extend_from_slice(text.as_bytes());
        self.open(",\"items\":[");
    }

    /// Appends bytes of a payload.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.payload.extend_from_slice(bytes);
        if self.payload.len() >= PAYLOAD_BYTES {
            self.end_payload();
        }
    }

    /// Appends an item.
    ///
    /// Errors: a piece of a stream, or a part of an item.
    pub(crate) fn item(&mut self, item: Item<'_>) -> Result<(), String> {
        let value = match item {
            Item::Chunk(bytes) => of_bytes(bytes),
            Item::Single { name, deadline_ms: None } => of_bytes(name),
            Item::Single { name, deadline_ms: Some(at) } => json!([of_bytes(name), "", at]),
            Item::Pair { name, value, deadline_ms: None } => {
                json!([of_bytes(name), of_bytes(value)])
            }
            Item::Pair { name, value, deadline_ms: Some(at) } => {
                json!([of_bytes(name), of_bytes(value), at])
            }
            Item::Scored { name, score } => json!([of_bytes(name), of_score(score)]),
            _ => return Err("an item that JSON lines do not have".to_owned()),
        };
        self.value(&value);
        Ok(())
    }

    /// Ends the key.
    pub(crate) fn end(&mut self) {
        self.end_payload();
        self.out.extend_from_slice(b"]}\n");
    }

    fn end_payload(&mut self) {
        if !self.payload.is_empty() {
            let text = Value::String(STANDARD.encode(&self.payload));
            self.payload.clear();
            self.value(&text);
        }
    }

    fn value(&mut self, value: &Value) {
        if self.line_bytes >= LINE_BYTES {
            self.out.extend_from_slice(b"],\"more\":true}\n");
            self.open("{\"items\":[");
        }
        let text = value.to_string();
        if self.items > 0 {
            self.out.push(b',');
        }
        self.out.extend_from_slice(text.as_bytes());
        self.items += 1;
        self.line_bytes += text.len() + 1;
    }

    fn open(&mut self, text: &str) {
        self.out.extend_from_slice(text.as_bytes());
        (self.line_bytes, self.items) = (0, 0);
    }

    fn whole(&mut self, value: &Value) {
        self.out.extend_from_slice(value.to_string().as_bytes());
        self.out.push(b'\n');
    }
}

/// Bytes as JSON: a string if they are UTF-8.
fn of_bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({ "base64": STANDARD.encode(bytes) }),
    }
}

/// The bytes that a JSON value stands for.
pub(crate) fn bytes_of(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(object) => STANDARD.decode(object.get("base64")?.as_str()?).ok(),
        _ => None,
    }
}

/// The bytes of a part of a payload.
pub(crate) fn payload_of(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

fn of_score(score: f64) -> Value {
    match score.is_finite() {
        true => json!(score),
        false if score > 0.0 => json!("inf"),
        false => json!("-inf"),
    }
}

/// The score that a JSON value stands for.
pub(crate) fn score_of(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}

/// The name of a product.
fn product_name(product: Product) -> &'static str {
    match product {
        Product::Redis => "redis",
        Product::Valkey => "valkey",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_scores_are_read_back() {
        for bytes in [&b""[..], b"a\"\\\r\n", "\u{e9}".as_bytes(), b"\xff\x00"] {
            assert_eq!(bytes_of(&of_bytes(bytes)).as_deref(), Some(bytes));
        }
        for score in [0.1, -0.0, 1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY] {
            let text = of_score(score).to_string();
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(score_of(&value).map(f64::to_bits), Some(score.to_bits()), "{text}");
        }
        assert_eq!(score_of(&json!("x")), None);
        assert_eq!(bytes_of(&json!({ "base64": "?" })), None);
    }

    #[test]
    fn long_values_take_several_lines_and_short_ones_take_one() {
        let mut lines = LineWriter::default();
        lines.key(3, b"k", "list", Some(9));
        for _ in 0..10 {
            let name = &[b'x'; 20_000][..];
            lines.item(Item::Single { name, deadline_ms: None }).unwrap();
        }
        lines.end();
        let text = String::from_utf8(lines.out).unwrap();
        let all: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(all.len(), 3);
        assert_eq!((&all[0]["db"], &all[0]["deadline_ms"]), (&json!(3), &json!(9)));
        let more: Vec<bool> = all.iter().map(|line| line["more"] == json!(true)).collect();
        assert_eq!(more, [true, true, false]);
        let items = all.iter().map(|line| line["items"].as_array().unwrap().len());
        assert_eq!(items.sum::<usize>(), 10);
    }
}
