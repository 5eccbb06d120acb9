//! Amounts of bookings and bounds of limits, in four dimensions.

use serde::{Deserialize, Serialize};

/// A counted resource.
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
    /// All dimensions, in the order of checks and output.
    pub const ALL: [Self; 4] = [Self::Slots, Self::Cpu, Self::Memory, Self::Gpus];

    /// The displayed name.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Slots => "slots",
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Gpus => "gpus",
        }
    }
}

/// An amount in each dimension.
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

/// An exact sum of amounts: it cannot overflow with as many amounts as fit in memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Total {
    slots: u128,
    cpu_milli: u128,
    memory_bytes: u128,
    gpus: u128,
}

/// Maximum of each dimension; `None` for unbounded.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Hash)]
pub struct Bounds {
    /// Units of admission.
    pub slots: Option<u64>,
    /// CPU in millicores.
    pub cpu_milli: Option<u64>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Whole GPUs.
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

    /// Adds in each dimension, saturating.
    pub fn add(&mut self, other: &Self) {
        self.slots = self.slots.saturating_add(other.slots);
        self.cpu_milli = self.cpu_milli.saturating_add(other.cpu_milli);
        self.memory_bytes = self.memory_bytes.saturating_add(other.memory_bytes);
        self.gpus = self.gpus.saturating_add(other.gpus);
    }

    /// Whether every dimension is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

impl Total {
    /// The empty sum.
    pub const ZERO: Self = Self {
        slots: 0,
        cpu_milli: 0,
        memory_bytes: 0,
        gpus: 0,
    };

    /// The sum in one dimension.
    pub const fn of(&self, dimension: Dimension) -> u128 {
        match dimension {
            Dimension::Slots => self.slots,
            Dimension::Cpu => self.cpu_milli,
            Dimension::Memory => self.memory_bytes,
            Dimension::Gpus => self.gpus,
        }
    }

    /// Adds an amount.
    pub fn add(&mut self, amount: &Amount) {
        self.slots += u128::from(amount.slots);
        self.cpu_milli += u128::from(amount.cpu_milli);
        self.memory_bytes += u128::from(amount.memory_bytes);
        self.gpus += u128::from(amount.gpus);
    }

    /// Subtracts an amount that was added before, saturating at zero.
    pub fn take(&mut self, amount: &Amount) {
        let left = |sum: u128, part: u64| sum.saturating_sub(u128::from(part));
        self.slots = left(self.slots, amount.slots);
        self.cpu_milli = left(self.cpu_milli, amount.cpu_milli);
        self.memory_bytes = left(self.memory_bytes, amount.memory_bytes);
        self.gpus = left(self.gpus, amount.gpus);
    }

    /// Whether every dimension is zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The sum as an amount, saturating.
    pub fn shown(&self) -> Amount {
        let shown = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        Amount {
            slots: shown(self.slots),
            cpu_milli: shown(self.cpu_milli),
            memory_bytes: shown(self.memory_bytes),
            gpus: shown(self.gpus),
        }
    }

    /// The dimensions in which `self + more` exceeds `bounds`.
    pub fn exceeds(&self, more: &Amount, bounds: &Bounds) -> impl Iterator<Item = Dimension> {
        let (mut sum, bounds) = (*self, *bounds);
        sum.add(more);
        Dimension::ALL.into_iter().filter(move |dimension| {
            let bound = bounds.of(*dimension);
            bound.is_some_and(|max| u128::from(max) < sum.of(*dimension))
        })
    }

    /// Whether `self + more` is within `bounds` in every dimension.
    pub fn fits(&self, more: &Amount, bounds: &Bounds) -> bool {
        self.exceeds(more, bounds).next().is_none()
    }
}

impl From<Amount> for Total {
    fn from(amount: Amount) -> Self {
        let mut total = Self::ZERO;
        total.add(&amount);
        total
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
