//! The target of JSON: any bytes, fed in pieces, are refused, or are a document whose text is the
//! same document; and any bytes as a path are refused, or are a path.

use darter_families::json::Path;
use darter_structs::json::{Format, Parser, Value, parse, to_text};

/// Texts and paths, a zero between them.
pub(crate) fn corpus() -> Result<Vec<Vec<u8>>, String> {
    let texts = [
        r#"{"a":[1,-2.5e3,true,null,"x\u00e9\ud83d\ude00"],"b":{"c":[]}}"#,
        r#"[[[[{"k":"v","k":18446744073709551615}]]],0.1,-0,"\\\/"]"#,
        r#""a long text, a long text, a long text, a long text, a long text, a long text""#,
    ];
    let paths = ["$..a[?(@.b<10 && !(@.c==\"x\"))].d", ".a[0,-1,1:5:2]['x',\"y\"].*", "$.[0]..*"];
    let pairs = texts.iter().flat_map(|text| paths.iter().map(move |path| (text, path)));
    Ok(pairs.map(|(text, path)| [text.as_bytes(), b"\0", path.as_bytes()].concat()).collect())
}

/// The document of a text that is fed in pieces of so many bytes.
fn fed(text: &[u8], bytes: usize) -> Option<Value> {
    let mut parser = Parser::default();
    for piece in text.chunks(bytes) {
        parser.feed(piece).ok()?;
    }
    parser.finish().ok()
}

/// See the module.
pub(crate) fn fuzz_documents(input: &[u8]) {
    let (text, path) = match input.iter().position(|byte| *byte == 0) {
        Some(at) => (&input[..at], &input[at + 1..]),
        None => (input, &b""[..]),
    };
    let _ = Path::parse(path);
    let whole = parse(text).ok();
    let pieces = fed(text, 1 + input.len() % 7);
    assert_eq!(whole.is_some(), pieces.is_some(), "pieces are what the whole is");
    let (Some(whole), Some(pieces)) = (whole, pieces) else { return };
    whole.check_invariants();
    let text = to_text(&whole, &[], &Format::default());
    assert!(text == to_text(&pieces, &[], &Format::default()));
    let again = parse(&text).expect("a text that was printed");
    assert!(text == to_text(&again, &[], &Format::default()), "it is the same");
}
