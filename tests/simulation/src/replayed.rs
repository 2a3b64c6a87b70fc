//! Replays records as files do: encoded as commands, which run on an empty shard.
//!
//! The shard's time stands still at 0, so nothing is dead. Acts of all cores are applied directly,
//! because they are commands of the server.

use darter_base::preempt::Never;
use darter_command::{Args, Command, Cx, Flow, PointFn, Run, Step};
use darter_keyspace::{Act, Commands, Record, Shard, apply, commands};
use darter_resp::{self as resp, Output, Parser, Reply};

/// The longest word.
const WORD_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A shard made of commands.
pub(crate) struct Replayed {
    pub(crate) shard: Shard,
    families: Vec<&'static [Command]>,
    to: Commands,
    /// The number of commands so far.
    pub(crate) count: usize,
}

impl Replayed {
    pub(crate) fn new(databases: usize, families: Vec<&'static [Command]>) -> Self {
        Self { shard: Shard::new(databases, 0), families, to: Commands::default(), count: 0 }
    }

    /// Runs the commands of a record.
    pub(crate) fn follow(&mut self, record: &Record) -> Result<(), String> {
        if let Act::Flush | Act::FlushAll | Act::Swap(_) = &record.act {
            return apply(&mut self.shard, record).map_err(|_| "an act of all cores".to_owned());
        }
        commands::encode(record, &mut self.to);
        let count = self.to.count();
        let bytes = self.to.take().flatten();
        let mut parser = Parser::new(WORD_BYTES_MAX, true);
        parser.feed(&bytes);
        let mut ran = 0;
        while let Some(args) = parser.next_request().map_err(|error| format!("{error:?}"))? {
            let shown = shown(args);
            let reply = self.run(record.database, args)?;
            if reply.starts_with(b"-") {
                return Err(format!("{shown}: {}", String::from_utf8_lossy(&reply)));
            }
            ran += 1;
        }
        self.count += ran;
        if ran == count { Ok(()) } else { Err(format!("{ran} of {count} commands")) }
    }

    /// The function of a command, and where its arguments begin.
    fn function(&self, args: resp::Args<'_>) -> Option<(PointFn, usize)> {
        let lower = |at: usize| String::from_utf8_lossy(args.get(at)).to_lowercase();
        let rows = || self.families.iter().copied().flatten();
        let name = lower(0);
        let sub = (args.len() > 1)
            .then(|| rows().find(|row| row.name == format!("{name}|{}", lower(1))))
            .flatten();
        let (row, first) = match sub {
            Some(row) => (row, 2),
            None => (rows().find(|row| row.name == name)?, 1),
        };
        match row.run {
            Run::Point(run) | Run::Multi { here: Some(run), .. } => Some((run, first)),
            _ => None,
        }
    }

    fn run(&mut self, database: usize, args: resp::Args<'_>) -> Result<Vec<u8>, String> {
        let Some((run, first)) = self.function(args) else { return Err(shown(args)) };
        let (db, prng, stats) = self.shard.parts_for(database, false);
        let mut out = Output::default();
        let (now, reply) = (db.now(), Reply::new(&mut out, false));
        let mut cx = Cx { db, reply, now, prng, stats, preempt: &Never };
        let mut flow = run(&mut cx, Args::new(args, first));
        loop {
            flow = match flow {
                Err(refusal) => {
                    return Ok(refusal.text().to_vec()).map(|text| [b"-", &*text].concat());
                }
                Ok(Flow::Done) => return Ok(out.flatten()),
                Ok(Flow::Stream(mut stream)) => {
                    while stream.pump(&mut cx.reply) {}
                    Ok(Flow::Done)
                }
                Ok(Flow::Job(mut job)) => match job.step(&mut cx) {
                    Ok(Step::More) => Ok(Flow::Job(job)),
                    Ok(Step::Done(flow)) => Ok(flow),
                    Err(refusal) => Err(refusal),
                },
            };
        }
    }
}

/// The beginning of a command.
fn shown(args: resp::Args<'_>) -> String {
    let words = (0..args.len().min(8)).map(|at| {
        let word = args.get(at);
        String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned()
    });
    format!("{:?} of {}", words.collect::<Vec<_>>(), args.len())
}
