//! Trace of a world: the last actions as text for people, and a hash of all actions for tests.

use std::collections::VecDeque;

/// Default number of last actions that a failure shows.
pub const SHOWN_DEFAULT: usize = 20;

/// The actions of one world.
#[derive(Clone, Debug)]
pub struct Trace {
    shown: usize,
    last: VecDeque<String>,
    steps: u64,
    hash: u64,
}

impl Trace {
    /// An empty trace that keeps the last `shown` actions.
    pub fn new(shown: usize) -> Self {
        Self {
            shown,
            last: VecDeque::new(),
            steps: 0,
            hash: 0,
        }
    }

    /// Starts a step.
    pub fn step(&mut self, line: String) {
        self.steps += 1;
        self.mix(&line);
        if self.last.len() >= self.shown {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// Appends a note to the current step.
    pub fn note(&mut self, words: &str) {
        self.mix(words);
        if let Some(line) = self.last.back_mut() {
            line.push_str("; ");
            line.push_str(words);
        }
    }

    /// Number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Hash over the whole text.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Last actions, oldest first, each with its step number.
    pub fn tail(&self) -> String {
        let shown = u64::try_from(self.last.len()).unwrap_or(0);
        let first = self.steps - shown + 1;
        let lines = self.last.iter().zip(first..);
        let lines: Vec<String> = lines
            .map(|(line, step)| format!("{step:>7}  {line}\n"))
            .collect();
        lines.concat()
    }

    /// FNV-1a: short, and the same on every platform.
    fn mix(&mut self, words: &str) {
        for byte in words.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
}
