//! Changes of a document as commands. Each has a path of names, which finds one value.

use super::super::path::BYTES_MAX;
use super::{JsonChange, Place};
use darter_keyspace::Commands;
use darter_keyspace::commands;
use darter_structs::json::{Format, JsonText, Value, View, quoted, to_text};

/// The path of names to the value at `path`; `None` if it is too long for a command, with `more`
/// bytes.
pub(super) fn path_text(root: &Value, path: &[usize], more: usize) -> Option<Vec<u8>> {
    let (mut text, mut view) = (b"$".to_vec(), root.view());
    for place in path {
        let View::Node(node) = view else { unreachable!("the path is there") };
        let child = node.get(*place).expect("the path is there");
        match child.name {
            Some(name) => push_name(&mut text, name),
            None => text.extend_from_slice(format!("[{place}]").as_bytes()),
        }
        if text.len() + more > BYTES_MAX {
            return None;
        }
        view = child.value;
    }
    (text.len() + more <= BYTES_MAX).then_some(text)
}

fn push_name(text: &mut Vec<u8>, name: JsonText<'_>) {
    text.push(b'[');
    text.extend_from_slice(&quoted(&name.to_vec()));
    text.push(b']');
}

/// Writes the commands that make `changes`.
pub(super) fn encode(changes: &[JsonChange], key: &[u8], to: &mut Commands) {
    commands::runs(changes, are_like, |run| match &run[0] {
        JsonChange::Assign { path, value } => set(key, &path.text, value, to),
        JsonChange::Put { path, name, value } => {
            let mut text = path.text.clone();
            push_name(&mut text, JsonText::Bytes(name));
            set(key, &text, value, to);
        }
        JsonChange::Insert { path, place, .. } => {
            begin(to, &[b"JSON.ARRINSERT", key, &path.text], 1 + run.len());
            to.size(*place);
            for change in run {
                if let JsonChange::Insert { value, .. } = change {
                    to.word(&text_of(value));
                }
            }
        }
        JsonChange::Remove { path } if path.indexes.is_empty() => to.command(&[b"UNLINK", key]),
        JsonChange::Remove { path } => to.command(&[b"JSON.DEL", key, &path.text]),
        JsonChange::RemoveRange { path, places, left } => {
            remove_range(key, path, (places.start, places.end, *left), to);
        }
    });
}

/// True if one command makes both changes: insertions side by side.
fn are_like(one: &JsonChange, other: &JsonChange) -> bool {
    matches!(
        (one, other),
        (
            JsonChange::Insert { path, place, .. },
            JsonChange::Insert { path: of, place: next, .. },
        ) if path.indexes == of.indexes && place + 1 == *next
    )
}

fn begin(to: &mut Commands, words: &[&[u8]], more: usize) {
    to.begin(words.len() + more);
    words.iter().for_each(|word| to.word(word));
}

fn set(key: &[u8], path: &[u8], value: &Value, to: &mut Commands) {
    to.command(&[b"JSON.SET", key, path, &text_of(value)]);
}

fn text_of(value: &Value) -> Vec<u8> {
    to_text(value, &[], &Format::default())
}

/// Writes the command that removes elements of an array. It can keep a range, or remove one element.
fn remove_range(
    key: &[u8],
    Place { text: path, .. }: &Place,
    (start, end, left): (usize, usize, usize),
    to: &mut Commands,
) {
    let mut trim = |first: i64, last: i64| {
        begin(to, &[b"JSON.ARRTRIM", key, path], 2);
        to.number(first);
        to.number(last);
    };
    match (start, end) {
        _ if start >= end => {}
        (0, _) if left == 0 => trim(1, 0),
        (0, end) => trim(end as i64, -1),
        (start, _) if start == left => trim(0, start as i64 - 1),
        (start, end) => {
            for place in (start..end).rev() {
                begin(to, &[b"JSON.ARRPOP", key, path], 1);
                to.size(place);
            }
        }
    }
}
