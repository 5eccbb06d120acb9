//! The files of one cgroup: its counters and its quota, of either version.
//!
//! Counters are read every second, so their files stay open. What cannot be read is no sample: a
//! file that vanished, shrank, is huge or holds garbage never reads as zero (M1, M11).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use bursar_market::cgroup::{self, Pressure, Quota};
use bursar_market::sense::Sample;
use rustix::io::Errno;

use super::claim::Claim;
use crate::cgroup::Version;

/// More than any of these files holds.
const FILE_SIZE_MAX: usize = 4_096;
/// The file of version 1 that counts use, in nanoseconds.
pub(super) const CPUACCT_USAGE: &str = "cpuacct.usage";
/// The file of either version that counts throttling, and of version 2 that counts use.
pub(super) const CPU_STAT: &str = "cpu.stat";
const CFS_QUOTA: &str = "cpu.cfs_quota_us";
const CFS_PERIOD: &str = "cpu.cfs_period_us";
const CPU_MAX: &str = "cpu.max";

/// The files of one cgroup.
#[derive(Debug)]
pub struct Files {
    limit: LimitFiles,
    /// Throttling; and use too, unless it is counted apart.
    stat: Option<File>,
    /// Use, where it is counted apart.
    usage: Option<Usage>,
    /// Whether throttling was counted when the files were opened: then a file without it is
    /// garbage.
    counts_throttling: bool,
    /// Where `cpu.pressure` is, if anywhere.
    pressure: Option<PathBuf>,
}

/// The files of one cgroup that limit it.
#[derive(Debug)]
pub struct LimitFiles {
    version: Version,
    directory: PathBuf,
    identity: u64,
}

/// Where use is counted apart from throttling.
#[derive(Debug)]
pub(super) enum Usage {
    /// `cpuacct.usage` of version 1.
    Cpuacct(File),
    /// `cpu.stat` of a version 2 that carries no controllers.
    Unified(File),
}

impl Files {
    /// Opens the files of a directory of the hierarchy that carries quotas. `usage` is where use
    /// is counted apart, `pressure` where waiting is. What counts nothing is not opened.
    pub(super) fn open(
        version: Version,
        directory: PathBuf,
        usage: Option<Usage>,
        pressure: Option<PathBuf>,
    ) -> io::Result<Self> {
        let stat = match File::open(directory.join(CPU_STAT)) {
            // A group that only some of version 1's hierarchies have.
            Err(error) if error.kind() == io::ErrorKind::NotFound && usage.is_some() => None,
            stat => Some(stat?),
        };
        // One that only counts is no less itself.
        let identity = fs::metadata(&directory).map_or(0, |directory| directory.ino());
        let limit = LimitFiles {
            version,
            directory,
            identity,
        };
        let mut files = Self {
            limit,
            stat,
            usage,
            counts_throttling: false,
            pressure,
        };
        let first = files.sample(0).ok_or_else(makes_no_sense)?;
        files.counts_throttling = first.throttled_us.is_some();
        Ok(files)
    }

    /// Those that limit it.
    pub fn limit(&self) -> &LimitFiles {
        &self.limit
    }

    /// The counters now.
    pub fn sample(&self, at_us: u64) -> Option<Sample> {
        let stat = match &self.stat {
            Some(stat) => cgroup::stat(&text(stat)?),
            None => cgroup::Stat::default(),
        };
        let usage_us = match &self.usage {
            Some(Usage::Cpuacct(usage)) => cgroup::cpuacct_usage_us(&text(usage)?)?,
            Some(Usage::Unified(usage)) => cgroup::stat(&text(usage)?).usage_us?,
            None => stat.usage_us?,
        };
        if self.counts_throttling && stat.throttled_us.is_none() {
            return None;
        }
        Some(Sample {
            at_us,
            usage_us,
            throttled_us: stat.throttled_us,
            periods: stat.periods,
            throttled_periods: stat.throttled_periods,
        })
    }

    /// How long its processes waited for a CPU, where the kernel counts it.
    pub fn pressure(&self) -> Option<Pressure> {
        let file = File::open(self.pressure.as_ref()?).ok()?;
        cgroup::pressure(&text(&file)?)
    }
}

impl LimitFiles {
    /// Those of a directory that is there.
    pub(super) fn open(version: Version, directory: PathBuf) -> io::Result<Self> {
        let identity = fs::metadata(&directory)?.ino();
        Ok(Self {
            version,
            directory,
            identity,
        })
    }

    /// Which group it is: another one of the same name has another number.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether the group is still there, and not another one in its place.
    pub fn is_there(&self) -> bool {
        let number = fs::metadata(&self.directory).map_or(0, |directory| directory.ino());
        number == self.identity
    }

    /// The quota as the kernel has it.
    pub fn quota(&self) -> io::Result<Quota> {
        let quota = match self.version {
            Version::V2 => cgroup::cpu_max(&self.read(CPU_MAX)?),
            Version::V1 => cgroup::cfs(&self.read(CFS_QUOTA)?, &self.read(CFS_PERIOD)?),
        };
        quota.ok_or_else(makes_no_sense)
    }

    /// Writes a quota. Version 1 takes quota and period apart: whichever comes first leaves a
    /// limit in between that is no larger than the larger of the old and the new one.
    pub fn set_quota(&self, quota: Quota) -> io::Result<()> {
        if self.version == Version::V2 {
            return self.write(CPU_MAX, &quota.cpu_max());
        }
        let period_us = self.quota()?.period_us;
        let period = quota.period_us.to_string();
        if period_us < quota.period_us || (period_us != quota.period_us && quota.quota_us.is_none())
        {
            self.write(CFS_PERIOD, &period)?;
            self.write(CFS_QUOTA, &quota.cfs_quota())
        } else {
            self.write(CFS_QUOTA, &quota.cfs_quota())?;
            if period_us == quota.period_us {
                return Ok(());
            }
            self.write(CFS_PERIOD, &period)
        }
    }

    /// Whether a quota can be written at all.
    pub fn may_write(&self) -> io::Result<()> {
        let name = match self.version {
            Version::V1 => CFS_QUOTA,
            Version::V2 => CPU_MAX,
        };
        let path = self.directory.join(name);
        OpenOptions::new().write(true).open(path).map(|_| ())
    }

    /// Keeps every other agent away from the group for as long as what is given back is there;
    /// `None` where one is there already.
    pub(super) fn claim(&self) -> io::Result<Option<Claim>> {
        Claim::of(&self.directory)
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let file = File::open(self.directory.join(name))?;
        text(&file).ok_or_else(makes_no_sense)
    }

    /// The files are the kernel's: one that is not there must not be created.
    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.directory.join(name);
        let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
        file.write_all(value.as_bytes())
    }
}

/// The whole of a small file that stays open; `None` for what is gone, too large or no text.
pub(super) fn text(file: &File) -> Option<String> {
    let mut bytes = vec![0; FILE_SIZE_MAX];
    let size = file.read_at(&mut bytes, 0).ok()?;
    if size == FILE_SIZE_MAX {
        return None;
    }
    bytes.truncate(size);
    String::from_utf8(bytes).ok()
}

/// Whether a file cannot be opened only because too many are open: that says nothing about it.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|short| number == Some(short.raw_os_error()))
}

fn makes_no_sense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its content makes no sense")
}
