//! The targets of JSON. Any bytes, fed in pieces, are refused, or are a document that is read back
//! from its own text. Any bytes as a path are refused or parsed. Any tokens of a payload are
//! refused, or are a document that is read back from its own tokens.

use darter_families::json::{Json, Path};
use darter_keyspace::{NewItem, Value as _};
use darter_structs::json::{Format, Parser, Value, parse, to_text};

const TEXTS: [&str; 3] = [
    r#"{"a":[1,-2.5e3,true,null,"x\u00e9\ud83d\ude00"],"b":{"c":[]}}"#,
    r#"[[[[{"k":"v","k":18446744073709551615}]]],0.1,-0,"\\\/"]"#,
    r#""a long text, a long text, a long text, a long text, a long text, a long text""#,
];

/// Texts and paths, separated by a zero byte.
pub(crate) fn corpus() -> Result<Vec<Vec<u8>>, String> {
    let paths = ["$..a[?(@.b<10 && !(@.c==\"x\"))].d", ".a[0,-1,1:5:2]['x',\"y\"].*", "$.[0]..*"];
    let pairs = TEXTS.iter().flat_map(|text| paths.iter().map(move |path| (text, path)));
    Ok(pairs.map(|(text, path)| [text.as_bytes(), b"\0", path.as_bytes()].concat()).collect())
}

/// The document of a text that is fed in pieces of `bytes` bytes.
fn fed(text: &[u8], bytes: usize) -> Option<Value> {
    let mut parser = Parser::default();
    for piece in text.chunks(bytes) {
        parser.feed(piece).ok()?;
    }
    parser.finish().ok()
}

/// The target of documents; see the module's documentation.
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

/// The tokens of a document, each after its length.
fn tokens_of(json: &Json) -> Vec<u8> {
    let (mut all, mut items) = (Vec::new(), json.items(0));
    while let Some(item) = items.next() {
        let item = NewItem::of(item).expect("a token");
        all.push(u8::try_from(item.name().len()).expect("texts of the corpus are short"));
        all.extend_from_slice(item.name());
    }
    all
}

/// Tokens of payloads, each after its length; and a long text in parts.
pub(crate) fn tokens() -> Result<Vec<Vec<u8>>, String> {
    let documents = TEXTS.iter().map(|text| parse(text.as_bytes()).map_err(|it| it.to_string()));
    let mut all: Vec<_> =
        documents.map(|it| it.map(|it| tokens_of(&Json::of(it)))).collect::<Result<_, _>>()?;
    all.push(b"\x01{\x01K\x03pab\x02p\xc3\x02p\xa9\x01e\x01S\x04pabc\x01e\x01c".to_vec());
    Ok(all)
}

/// The target of tokens; see the module's documentation.
pub(crate) fn fuzz_tokens(mut input: &[u8]) {
    let mut json = Json::default();
    while let Some((len, rest)) = input.split_first() {
        let (token, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        if !json.take_in(NewItem::Single { name: token, deadline: None }) {
            return;
        }
        input = rest;
    }
    let Some(root) = json.root() else { return };
    root.check_invariants();
    let (mut again, mut items) = (Json::default(), json.items(0));
    while let Some(item) = items.next() {
        assert!(again.take_in(NewItem::of(item).expect("a token")), "its own tokens");
    }
    let text = |json: &Json| json.root().map(|root| to_text(root, &[], &Format::default()));
    let text_of_all = text(&json);
    assert!(text_of_all == text(&again), "it is the same");
    let printed = text_of_all.unwrap_or_default();
    assert!(std::str::from_utf8(&printed).is_ok(), "a text is UTF-8");
}
