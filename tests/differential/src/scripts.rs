//! Turns random commands into scripts: some adjacent commands become the calls of one script, in
//! one of the forms of running it.
//!
//! A sequence stores the commands separately, each with its script, and they are folded only when
//! it is played. So a failing sequence is also shrunk inside its scripts.
//!
//! Only commands that are compared byte for byte are put into scripts, because a script's reply is
//! compared as a whole.

use crate::transactions;
use crate::vocabulary::{Command, KEYS};
use darter_base::Prng;
use darter_testkit::compare::Match;
use sha1::{Digest, Sha1};
use std::fmt::Write;

/// The way in which a script is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Eval,
    EvalReadOnly,
    EvalNoWrites,
    EvalSha,
    Function,
    FunctionNoWrites,
    FunctionReadOnly,
}

/// Weights of the forms. Read-only forms mostly meet refusals, so they are rare.
const FORMS: &[(u64, Form)] = &[
    (6, Form::Eval),
    (1, Form::EvalReadOnly),
    (1, Form::EvalNoWrites),
    (4, Form::EvalSha),
    (4, Form::Function),
    (1, Form::FunctionNoWrites),
    (1, Form::FunctionReadOnly),
];

/// Weights of the last statements of scripts.
const ENDINGS: &[(u64, &str)] = &[
    (16, "return replies"),
    (2, "return replies[1]"),
    (2, "return cmsgpack.pack(replies)"),
    (1, "return {replies[1], #replies, 3.9, -0.5, true, false, {replies}}"),
    (1, "return redis.error_reply('MINE of its own')"),
    (1, "return redis.status_reply('fine')"),
    (1, "return {err = 'ERR its own'}"),
    (1, "error('raised')"),
    (1, "error({err = 'MINE raised'})"),
    (1, "return 1e17"),
    (1, ""),
];

/// The most words of a call that are written as literals: Lua has 250 registers.
const WORDS_MAX: usize = 100;

/// The script that calls a command. Adjacent commands with the same number are one script.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Script {
    number: usize,
    form: Form,
    opening: &'static str,
    ending: &'static str,
    /// The keys are passed as keys; otherwise they are literals in the script's text, or among its
    /// arguments.
    names_keys: bool,
    is_literal: bool,
    /// The function by which it calls the command.
    call: &'static str,
}

/// The commands, some of them called by scripts.
pub(crate) fn wrapped(prng: &mut Prng, mut commands: Vec<Command>) -> Vec<Command> {
    let mut current: Option<Script> = None;
    let mut inside = 0;
    for (number, command) in commands.iter_mut().enumerate() {
        if inside == 0 && prng.chance(25) {
            inside = 1 + prng.below(6);
            current = Some(random(prng, number));
        }
        if inside == 0 {
            continue;
        }
        inside -= 1;
        if may_be_called(command) {
            let call = if prng.chance(70) { "redis.pcall" } else { "redis.call" };
            command.script = current.map(|script| Script { call, ..script });
        }
    }
    commands
}

/// True unless the command belongs to a transaction: transactions surround scripts, not vice versa.
fn may_be_called(command: &Command) -> bool {
    let is_verb = matches!(&*command.words[0], b"WATCH" | b"MULTI" | b"EXEC" | b"DISCARD");
    command.how == Match::Exact && !is_verb && !transactions::differs_inside(command)
}

fn random(prng: &mut Prng, number: usize) -> Script {
    Script {
        number,
        form: *prng.weighted(FORMS),
        opening: if prng.chance(30) { "redis.setresp(3)\n" } else { "" },
        ending: prng.weighted::<&str>(ENDINGS),
        names_keys: prng.chance(80),
        is_literal: prng.chance(50),
        call: "",
    }
}

/// The commands of a sequence as sent: each script is one command, or two, of which the first loads
/// it.
pub(crate) fn folded(commands: &[Command]) -> Vec<Command> {
    let of = |command: &Command| command.script.map(|script| script.number);
    let runs = commands.chunk_by(|one, next| of(one) == of(next));
    runs.flat_map(|run| match run[0].script {
        Some(script) => script.folded(run),
        None => run.to_vec(),
    })
    .collect()
}

impl Script {
    fn folded(self, calls: &[Command]) -> Vec<Command> {
        let mut draft = Draft::default();
        for (at, command) in calls.iter().enumerate() {
            draft.call(at + 1, command);
        }
        let Draft { lines, keys, args } = draft;
        let body = format!("{}local replies = {{}}\n{lines}{}\n", self.opening, self.ending);
        let rest = [vec![keys.len().to_string().into_bytes()], keys, args].concat();
        let run = |words: &[&str]| {
            let words = words.iter().map(|word| word.as_bytes().to_vec());
            Command::new(words.chain(rest.iter().cloned()).collect())
        };
        match self.form {
            Form::Eval => vec![run(&["EVAL", &body])],
            Form::EvalReadOnly => vec![run(&["EVAL_RO", &body])],
            Form::EvalNoWrites => vec![run(&["EVAL", &format!("#!lua flags=no-writes\n{body}")])],
            Form::EvalSha => {
                let load = of(&["SCRIPT", "LOAD", &body]);
                vec![load, run(&["EVALSHA", &format!("{:x}", Sha1::digest(&body))])]
            }
            Form::Function => vec![library(&body, ""), run(&["FCALL", "random"])],
            Form::FunctionNoWrites => {
                vec![library(&body, "'no-writes'"), run(&["FCALL", "random"])]
            }
            Form::FunctionReadOnly => {
                vec![library(&body, "'no-writes'"), run(&["FCALL_RO", "random"])]
            }
        }
    }
}

/// Loads a library with one function, whose body is a script.
fn library(body: &str, flags: &str) -> Command {
    let text = format!(
        "#!lua name=random\nredis.register_function{{function_name = 'random', \
         flags = {{{flags}}}, callback = function(KEYS, ARGV)\n{body}end}}"
    );
    of(&["FUNCTION", "LOAD", "REPLACE", &text])
}

fn of(words: &[&str]) -> Command {
    Command::new(words.iter().map(|word| word.as_bytes().to_vec()).collect())
}

/// The text of a script being written.
#[derive(Default)]
struct Draft {
    lines: String,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Draft {
    /// A line that calls a command.
    fn call(&mut self, at: usize, command: &Command) {
        let script = command.script.expect("only what a script calls is written into one");
        let words = if command.words.len() > WORDS_MAX {
            let first = self.args.len() + 1;
            self.args.extend_from_slice(&command.words);
            format!("unpack(ARGV, {first}, {})", self.args.len())
        } else {
            let words: Vec<_> = command.words.iter().map(|word| self.word(script, word)).collect();
            words.join(", ")
        };
        let _ = writeln!(self.lines, "replies[{at}] = {}({words})", script.call);
    }

    fn word(&mut self, script: Script, word: &[u8]) -> String {
        let is_key = KEYS.iter().any(|key| key.as_bytes() == word);
        if script.names_keys && is_key {
            return format!("KEYS[{}]", place(&mut self.keys, word));
        }
        if !script.is_literal {
            return format!("ARGV[{}]", place(&mut self.args, word));
        }
        let is_number = word.first().is_some_and(|byte| (b'1'..=b'9').contains(byte))
            && word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
            && std::str::from_utf8(word).is_ok_and(|word| word.parse::<f64>().is_ok());
        if is_number { String::from_utf8_lossy(word).into_owned() } else { quoted(word) }
    }
}

/// The index of a word, starting at one; it is added if it is missing.
fn place(words: &mut Vec<Vec<u8>>, word: &[u8]) -> usize {
    let found = words.iter().position(|one| one == word);
    let at = found.unwrap_or_else(|| {
        words.push(word.to_vec());
        words.len() - 1
    });
    at + 1
}

/// A string of Lua.
fn quoted(word: &[u8]) -> String {
    let mut text = String::from("'");
    for byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => text.push(char::from(*byte)),
            _ => {
                let _ = write!(text, "\\{byte:03}");
            }
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(words: &[&str], number: usize, form: Form) -> Command {
        let script = Script {
            number,
            form,
            opening: "",
            ending: "return replies",
            names_keys: true,
            is_literal: true,
            call: "redis.call",
        };
        Command { script: Some(script), ..of(words) }
    }

    #[test] // A part of them is a script as well.
    fn adjacent_calls_are_folded_into_one_script() {
        let commands = [
            of(&["GET", "a"]),
            called(&["SET", "b", "it's\n"], 1, Form::Eval),
            called(&["INCRBY", "b", "17"], 1, Form::Eval),
            called(&["DEL", "b", "a"], 3, Form::EvalSha),
        ];
        let played = folded(&commands);
        let texts: Vec<Vec<String>> = played
            .iter()
            .map(|command| {
                command.words.iter().map(|word| String::from_utf8_lossy(word).into()).collect()
            })
            .collect();
        assert_eq!(texts[0], ["GET", "a"]);
        let body = "local replies = {}\nreplies[1] = redis.call('SET', KEYS[1], 'it\\'s\\010')\n\
                    replies[2] = redis.call('INCRBY', KEYS[1], 17)\nreturn replies\n";
        assert_eq!(texts[1], ["EVAL", body, "1", "b"]);
        assert_eq!((&*texts[2][0], &*texts[3][0], texts[3][1].len()), ("SCRIPT", "EVALSHA", 40));
        assert_eq!(texts[3][2..], ["2", "b", "a"]);
        assert_eq!(folded(&commands[..2])[1].words[2..], [b"1".to_vec(), b"b".to_vec()]);
    }
}
