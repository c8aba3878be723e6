//! Dynamo's index of which worker holds which blocks (ConcurrentRadixTreeCompressed, with one thread that
//! applies events), to compare package fleet with (hitbench compare --holders). It reads commands from
//! standard input, lines of JSON, and writes a line of JSON for each that has an answer, and one before all
//! that says it is ready. bench/rivals/llmd speaks the same.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheStoreData, KvCacheStoredBlockData,
    LocalBlockHash, OverlapScores, RouterEvent,
};
use dynamo_kv_router::{ConcurrentRadixTreeCompressed, ThreadPoolIndexer};
use serde::{Deserialize, Serialize};

/// Counts the bytes in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: System does the work, with the layouts that it is given.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(at, layout) }
    }
}

/// One line of input. One of its fields is set.
#[derive(Deserialize)]
struct Command {
    store: Option<Store>,    // no answer
    query: Option<Vec<u64>>, // adds a query, numbered from 0; no answer
    answer: Option<usize>,   // a query; answered by Reply.prefixes
    measure: Option<usize>,  // a query; answered by Reply.ns
    heap: Option<bool>,      // answered by Reply.heap
}

#[derive(Deserialize)]
struct Store {
    holder: String,
    parent: Option<u64>, // none at the beginning of a prompt
    blocks: Vec<u64>,
}

/// One line of output.
#[derive(Default, Serialize)]
struct Reply {
    #[serde(skip_serializing_if = "Option::is_none")]
    prefixes: Option<HashMap<String, u32>>, // blocks, by holder
    #[serde(skip_serializing_if = "Option::is_none")]
    ns: Option<u64>, // that a query took
    #[serde(skip_serializing_if = "Option::is_none")]
    heap: Option<usize>, // bytes in use
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>, // of the index; comes with heap
}

/// Dynamo's index with what it is asked.
struct Subject {
    index: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    holders: Vec<String>, // a worker's number is its place
    queries: Vec<Vec<LocalBlockHash>>,
    events: u64,
}

impl Subject {
    fn new() -> Self {
        let index = ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, 16);
        Subject { index, holders: Vec::new(), queries: Vec::new(), events: 0 }
    }

    fn run(&mut self, command: Command) -> Result<Option<Reply>, String> {
        if let Some(store) = command.store {
            self.store(store)?;
            return Ok(None);
        }
        if let Some(query) = command.query {
            self.queries.push(query.into_iter().map(LocalBlockHash).collect());
            return Ok(None);
        }
        self.wait()?;
        let mut reply = Reply::default();
        if let Some(number) = command.answer {
            let scores = self.ask(self.query(number)?).scores;
            let name = |worker: u64| self.holders[worker as usize].clone();
            reply.prefixes = Some(scores.iter().map(|(worker, &n)| (name(worker.worker_id), n)).collect());
        } else if let Some(number) = command.measure {
            let query = self.query(number)?;
            let begin = Instant::now();
            std::hint::black_box(self.ask(query));
            reply.ns = Some(begin.elapsed().as_nanos() as u64);
        } else if command.heap.is_some() {
            reply.heap = Some(IN_USE.load(Ordering::Relaxed));
            reply.version = Some("1.6.1"); // as in Cargo.toml
        } else {
            return Err("a command without a field".into());
        }
        Ok(Some(reply))
    }

    /// Has the index apply the event of an engine that has stored blocks.
    fn store(&mut self, store: Store) -> Result<(), String> {
        let worker = self.holders.iter().position(|h| *h == store.holder).unwrap_or_else(|| {
            self.holders.push(store.holder.clone());
            self.holders.len() - 1
        });
        // The engine's hash of a block, and the index's own of its tokens, which is another number there and
        // costs the same.
        let block = |&hash: &u64| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(hash),
            tokens_hash: LocalBlockHash(hash),
            mm_extra_info: None,
        };
        let data = KvCacheEventData::Stored(KvCacheStoreData {
            parent_hash: store.parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: store.blocks.iter().map(block).collect(),
        });
        self.events += 1;
        let event = KvCacheEvent { event_id: self.events, data, dp_rank: 0 };
        self.index.enqueue_event(RouterEvent::new(worker as u64, event)).map_err(|e| e.to_string())
    }

    /// Waits until the events are applied.
    fn wait(&self) -> Result<(), String> {
        pollster::block_on(self.index.flush_and_wait()).map_err(|e| e.to_string())
    }

    fn query(&self, number: usize) -> Result<&[LocalBlockHash], String> {
        self.queries.get(number).map(Vec::as_slice).ok_or_else(|| format!("no query {number}"))
    }

    /// Returns how many of a query's first blocks each worker has.
    fn ask(&self, query: &[LocalBlockHash]) -> OverlapScores {
        self.index.backend().find_matches_impl(query, false)
    }
}

fn serve() -> Result<(), String> {
    let mut subject = Subject::new();
    let mut out = io::stdout().lock();
    writeln!(out, r#"{{"ready": true}}"#).map_err(|e| e.to_string())?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|e| e.to_string())?;
        let command = serde_json::from_str(&line).map_err(|e| e.to_string())?;
        if let Some(reply) = subject.run(command)? {
            let text = serde_json::to_string(&reply).map_err(|e| e.to_string())?;
            writeln!(out, "{text}").map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

fn main() {
    if let Err(e) = serve() {
        eprintln!("hitbench-dynamo: {e}");
        std::process::exit(1);
    }
}
