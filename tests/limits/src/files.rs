//! A low limit of open files: as many clients as fit are served; others are refused, not left
//! waiting.

use crate::{Asks, Check, Stage, ensure, text};
use darter_testkit::{Client, Server};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// The value of `ulimit -n`, and the clients that fit: Redis reserves 32 files for other uses.
const FILES: u64 = 60;
const FITTING: usize = 28;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("few files: maxclients is reduced",           Asks::AsRedis, reduced),
    ("few files: further clients are refused",     Asks::AsRedis, beyond),
    ("too few files are refused at the start",     Asks::AsRedis, too_few),
];

/// A server that may open few files, and cannot raise the limit.
fn server_with_few(stage: &Stage) -> Result<Server, String> {
    let server = Server::subject_under(FILES, stage.shape, &[]).map_err(text)?;
    let allowed = server.process().files_allowed();
    ensure(allowed <= FILES, || format!("the limit did not hold: {allowed} files"))?;
    let mut client = server.client().map_err(text)?;
    let found = client.words("CONFIG GET maxclients").map_err(text)?.encode();
    ensure(found == encoded("28"), || format!("{:?}", String::from_utf8_lossy(&found)))?;
    Ok(server)
}

/// The reply to CONFIG GET maxclients.
fn encoded(number: &str) -> Vec<u8> {
    format!("*2\r\n$10\r\nmaxclients\r\n${}\r\n{number}\r\n", number.len()).into_bytes()
}

fn reduced(stage: &Stage) -> Result<(), String> {
    let server = server_with_few(stage)?;
    let words = "maxclients is reduced to 28";
    ensure(server.logs(words, Duration::from_secs(5)), || server.log())?;
    let mut client = server.client().map_err(text)?;
    let more = client.words("CONFIG SET timeout 7 maxclients 29").map_err(text)?;
    let refusal = "-ERR CONFIG SET failed (possibly related to argument 'maxclients') - The \
        operating system is not able to handle the specified number of clients, try with 28\r\n";
    ensure(more.encode() == refusal.as_bytes(), || format!("{more:?}"))?;
    let timeout = client.words("CONFIG GET timeout").map_err(text)?;
    ensure(timeout.encode().ends_with(b"$1\r\n0\r\n"), || format!("half changed: {timeout:?}"))?;
    for number in ["20", "28"] {
        let set = client.command(&["CONFIG", "SET", "maxclients", number]).map_err(text)?;
        ensure(set.text() == Some(b"OK"), || format!("{number}: {set:?}"))?;
        let found = client.words("CONFIG GET maxclients").map_err(text)?.encode();
        ensure(found == encoded(number), || format!("{number}: {found:?}"))?;
    }
    Ok(())
}

/// Three hundred clients connect at once, then all send a command.
fn beyond(stage: &Stage) -> Result<(), String> {
    let server = server_with_few(stage)?;
    for round in 0..2 {
        let mut sockets: Vec<TcpStream> = Vec::new();
        for _ in 0..300 {
            sockets.push(TcpStream::connect(("127.0.0.1", server.port())).map_err(text)?);
        }
        let (mut served, mut refused) = (Vec::new(), 0);
        for (at, mut socket) in sockets.into_iter().enumerate() {
            match first_answer(&mut socket)? {
                Answer::Served => served.push(socket),
                Answer::Refused => refused += 1,
                Answer::Nothing => {
                    return Err(format!("round {round}: client {at} is left waiting"));
                }
            }
        }
        let most = FITTING - 3..=FITTING; // The client of the readiness probe may still count.
        ensure(most.contains(&served.len()), || {
            format!("round {round}: {} were served, {refused} refused", served.len())
        })?;
        drop(served);
        is_served_again(&server)?;
    }
    Ok(())
}

/// The first answer to a client.
enum Answer {
    Served,
    Refused,
    Nothing,
}

fn first_answer(socket: &mut TcpStream) -> Result<Answer, String> {
    socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(text)?;
    if socket.write_all(b"PING\r\n").is_err() {
        return Ok(Answer::Refused); // The server has closed the connection.
    }
    let mut answer = [0; 64];
    match socket.read(&mut answer) {
        Ok(got) if answer[..got].starts_with(b"+PONG") => Ok(Answer::Served),
        Ok(0) => Ok(Answer::Refused),
        Ok(got) => {
            let refusal = answer[..got].starts_with(b"-ERR max number of clients reached\r\n");
            ensure(refusal, || format!("{:?}", String::from_utf8_lossy(&answer[..got])))?;
            Ok(Answer::Refused)
        }
        // Our PING may have reached the closed socket; then the refusal is lost in the reset.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(Answer::Refused),
        Err(_) => Ok(Answer::Nothing),
    }
}

fn is_served_again(server: &Server) -> Result<(), String> {
    let start = Instant::now();
    let pong = |mut client: Client| client.words("PING");
    while !server.client().and_then(pong).is_ok_and(|pong| pong.text() == Some(b"PONG")) {
        ensure(start.elapsed() < Duration::from_secs(10), || "no service after".to_owned())?;
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn too_few(stage: &Stage) -> Result<(), String> {
    match Server::subject_under(20, stage.shape, &[]) {
        Ok(server) => Err(format!("it runs with {} files", server.process().files_allowed())),
        Err(error) => {
            let message = error.to_string();
            ensure(message.contains("ulimit -n"), || message)
        }
    }
}
