//! What a booking asks for and what a limit allows, in four dimensions.

use serde::{Deserialize, Serialize};

/// One of the four things that are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dimension {
    /// Units of admission.
    Slots,
    /// CPU in millicores.
    Cpu,
    /// Memory in bytes.
    Memory,
    /// Whole GPUs.
    Gpus,
}

impl Dimension {
    /// All four, in the order in which they are checked and shown.
    pub const ALL: [Self; 4] = [Self::Slots, Self::Cpu, Self::Memory, Self::Gpus];

    /// The word people see.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpus => "gpus",
        }
    }
}

/// How much of each dimension.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Hash)]
pub struct Amount {
    /// Units of admission.
    pub slots: u64,
    /// CPU in millicores.
    pub cpu_milli: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Whole GPUs.
    pub gpus: u64,
}

/// The most of each dimension; `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Hash)]
pub struct Bounds {
    /// Most units of admission.
    pub slots: Option<u64>,
    /// Most CPU in millicores.
    pub cpu_milli: Option<u64>,
    /// Most memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Most whole GPUs.
    pub gpus: Option<u64>,
}

impl Amount {
    /// The amount in one dimension.
    pub const fn of(&self, dimension: Dimension) -> u64 {
        match dimension {
            Dimension::Slots => self.slots,
            Dimension::Cpu => self.cpu_milli,
            Dimension::Memory => self.memory_bytes,
            Dimension::Gpus => self.gpus,
        }
    }

    /// Adds, dimension by dimension, and stays at the largest number rather than overflow.
    pub fn add(&mut self, other: &Self) {
        self.slots = self.slots.saturating_add(other.slots);
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.gpus = self.gpus.saturating_add(other.gpus);
    }

    /// Adds to a running total, modulo 2⁶⁴: however much was added, taking the same away again
    /// leads back to where it began.
    pub fn count_in(&mut self, other: &Self) {
        self.slots = self.slots.wrapping_add(other.slots);
        self.cpu_milli = self.cpu_milli.wrapping_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.wrapping_add(other.memory_bytes);
        self.gpus = self.gpus.wrapping_add(other.gpus);
    }

    /// The reverse of [`Self::count_in`].
    pub fn count_out(&mut self, other: &Self) {
        self.slots = self.slots.wrapping_sub(other.slots);
        self.cpu_milli = self.cpu_milli.wrapping_sub(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.wrapping_sub(other.memory_bytes);
        self.gpus = self.gpus.wrapping_sub(other.gpus);
    }

    /// Whether every dimension is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// The dimensions in which `self + more` is above `bounds`.
    pub fn exceeds(&self, more: &Self, bounds: &Bounds) -> impl Iterator<Item = Dimension> {
        let (used, more, bounds) = (*self, *more, *bounds);
        Dimension::ALL.into_iter().filter(move |dimension| {
            bounds.of(*dimension).is_some_and(|max| {
                u128::from(used.of(*dimension)) + u128::from(more.of(*dimension)) > u128::from(max)
            })
        })
    }

    /// Whether `self + more` stays within `bounds` in every dimension.
    pub fn fits(&self, more: &Self, bounds: &Bounds) -> bool {
        self.exceeds(more, bounds).next().is_none()
    }
}

impl Bounds {
    /// The bound of one dimension.
    pub const fn of(&self, dimension: Dimension) -> Option<u64> {
        match dimension {
            Dimension::Slots => self.slots,
            Dimension::Cpu => self.cpu_milli,
            Dimension::Memory => self.memory_bytes,
            Dimension::Gpus => self.gpus,
        }
    }
}
