//! Parallel gzip: blocks are compressed in parallel and written in order, by an ordered channel. What comes out is gzip: `gunzip` reads it.
//!
//! ```text
//! cargo run --release -p fibra --example pgz -- [file] > file.gz       without a file: standard input
//! ```
//!
//! What it shows: `channel::ordered` (a few blocks at a time for each core, memory bounded however large the file is), `compute` (without
//! it the reader would wait behind the blocks on its own worker, and the other one would have nothing to do), back-pressure from a slow
//! output to the input, progress on a terminal. Each block is a gzip member of its own, as the format allows. `crates/rivals/pgz`
//! compares it with pigz.

use std::io::{self, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use fibra::channel;

/// Large enough that compressing each block by itself costs little.
const BLOCK: usize = 256 << 10;
const LEVEL: u8 = 6;

// (The compressor has its tables on the stack.)
#[fibra::main(stack_size = 1_048_576)]
fn main() -> ExitCode {
    let file = std::env::args().nth(1);
    let done = match &file {
        Some(path) => fibra::fs::File::open(path).and_then(compress),
        None => compress(fibra::io::stdin()),
    };
    match done {
        Ok((read, written)) => {
            eprintln!("pgz: {read} bytes to {written}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pgz: {}: {error}", file.as_deref().unwrap_or("standard input"));
            ExitCode::FAILURE
        }
    }
}

/// Compresses everything to standard output. Says how many bytes were read and written.
fn compress(mut input: impl Read + Send) -> io::Result<(u64, u64)> {
    let at_a_time = std::thread::available_parallelism().map_or(2, |cores| cores.get() * 2);
    let (blocks, compressed) = channel::ordered(at_a_time);
    let read = Arc::new(AtomicU64::new(0));
    fibra::scope(|s| {
        let progress = s.spawn({
            let read = read.clone();
            move || show_progress(&read)
        });
        let reading = s.spawn({
            let read = &read;
            move || -> io::Result<()> {
                loop {
                    let mut block = Vec::with_capacity(BLOCK);
                    input.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
                    // (An empty input is one empty member.)
                    let first = read.fetch_add(block.len() as u64, Relaxed) == 0;
                    let last = block.len() < BLOCK;
                    if (first || !block.is_empty()) && blocks.spawn(move || fibra::compute(|| member(&block))).is_err()
                        || last
                    {
                        return Ok(()); // `blocks` goes, and with it the end is told; or the writer has given up
                    }
                }
            }
        });
        let mut written = 0;
        let mut output = fibra::io::stdout();
        let wrote = compressed.iter().try_for_each(|member| {
            let member = member.unwrap_or_else(|error| error.resume_unwind());
            written += member.len() as u64;
            output.write_all(&member)
        });
        drop(compressed);
        let done =
            wrote.and_then(|()| output.flush()).and(reading.join().unwrap_or_else(|error| error.resume_unwind()));
        progress.cancel();
        done.map(|()| (read.load(Relaxed), written))
    })
}

/// A gzip member: header, deflated bytes, checksum, length.
fn member(block: &[u8]) -> Vec<u8> {
    let mut member = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    member.extend(miniz_oxide::deflate::compress_to_vec(block, LEVEL));
    member.extend(crc32(block).to_le_bytes());
    member.extend((block.len() as u32).to_le_bytes());
    member
}

/// The checksum of gzip, eight bytes at a time: table `n` holds what a byte comes to when `n` more have followed it.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLES: [[u32; 256]; 8] = {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let (mut value, mut bit) = (byte as u32, 0);
            while bit < 8 {
                value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
                bit += 1;
            }
            tables[0][byte] = value;
            byte += 1;
        }
        let mut table = 1;
        while table < 8 {
            byte = 0;
            while byte < 256 {
                let before: u32 = tables[table - 1][byte];
                tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
                byte += 1;
            }
            table += 1;
        }
        tables
    };
    let eights = bytes.chunks_exact(8);
    let rest = eights.remainder();
    let crc = eights.fold(!0_u32, |crc, eight| {
        let mut eight: [u8; 8] = eight.try_into().expect("eight bytes");
        eight.iter_mut().zip(crc.to_le_bytes()).for_each(|(byte, crc)| *byte ^= crc);
        (0..8).fold(0, |crc, place| crc ^ TABLES[7 - place][eight[place] as usize])
    });
    !rest.iter().fold(crc, |crc, byte| TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize] ^ crc >> 8)
}

/// On a terminal, how far it is; until it is cancelled.
fn show_progress(read: &AtomicU64) {
    if !io::stderr().is_terminal() {
        return;
    }
    for _ in channel::tick(Duration::from_millis(200)) {
        eprint!("\rpgz: {} MiB ", read.load(Relaxed) >> 20);
    }
}
