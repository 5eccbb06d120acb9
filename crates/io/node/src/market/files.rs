//! The files of one cgroup, of either version: its counters and its quota.
//!
//! Counters are read every second, so their files stay open. An unreadable file gives no sample: one
//! that vanished, shrank, is too large or holds garbage never reads as zero (M1, M11).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use bursar_market::cgroup::{self, Pressure, Quota};
use bursar_market::sense::Sample;
use rustix::io::Errno;

use super::claim::Claim;
use crate::cgroup::Version;

/// Larger than any of these files.
const FILE_SIZE_MAX: usize = 4_096;
/// Counts use in version 1, in nanoseconds.
pub(super) const CPUACCT_USAGE: &str = "cpuacct.usage";
/// Counts throttling in both versions, and use in version 2.
pub(super) const CPU_STAT: &str = "cpu.stat";
const CFS_QUOTA: &str = "cpu.cfs_quota_us";
const CFS_PERIOD: &str = "cpu.cfs_period_us";
const CPU_MAX: &str = "cpu.max";

/// The files of one cgroup.
#[derive(Debug)]
pub struct Files {
    limit: LimitFiles,
    /// Throttling, and use unless it is in another file.
    stat: Option<File>,
    /// Use, if it is in another file.
    usage: Option<Usage>,
    /// Whether throttling was counted at opening: then a file without it is invalid.
    counts_throttling: bool,
    /// The path of `cpu.pressure`.
    pressure: Option<PathBuf>,
}

/// The limit files of one cgroup.
#[derive(Debug)]
pub struct LimitFiles {
    version: Version,
    directory: PathBuf,
    identity: u64,
}

/// The file that counts use, if it is not that of throttling.
#[derive(Debug)]
pub(super) enum Usage {
    /// `cpuacct.usage` of version 1.
    Cpuacct(File),
    /// `cpu.stat` of a version 2 without controllers.
    Unified(File),
}

impl Files {
    /// Opens the files of a directory in the hierarchy with quotas. Fails if nothing is counted.
    pub(super) fn open(
        version: Version,
        directory: PathBuf,
        usage: Option<Usage>,
        pressure: Option<PathBuf>,
    ) -> io::Result<Self> {
        let stat = match File::open(directory.join(CPU_STAT)) {
            // The group exists only in other hierarchies of version 1.
            Err(error) if error.kind() == io::ErrorKind::NotFound && usage.is_some() => None,
            stat => Some(stat?),
        };
        // A group that exists only in the counting hierarchy has identity 0.
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
        let first = files.sample(0).ok_or_else(invalid_content)?;
        files.counts_throttling = first.throttled_us.is_some();
        Ok(files)
    }

    /// The limit files.
    pub fn limit(&self) -> &LimitFiles {
        &self.limit
    }

    /// Reads the counters; `None` if they are unreadable.
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

    /// The time that its processes waited for a CPU, where the kernel counts it.
    pub fn pressure(&self) -> Option<Pressure> {
        let file = File::open(self.pressure.as_ref()?).ok()?;
        cgroup::pressure(&text(&file)?)
    }
}

impl LimitFiles {
    pub(super) fn open(version: Version, directory: PathBuf) -> io::Result<Self> {
        let identity = fs::metadata(&directory)?.ino();
        Ok(Self {
            version,
            directory,
            identity,
        })
    }

    /// The inode, which differs for another group of the same name.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// Whether the group still exists and was not replaced by another one of the same name.
    pub fn is_there(&self) -> bool {
        let number = fs::metadata(&self.directory).map_or(0, |directory| directory.ino());
        number == self.identity
    }

    /// Reads the quota.
    pub fn quota(&self) -> io::Result<Quota> {
        let quota = match self.version {
            Version::V2 => cgroup::cpu_max(&self.read(CPU_MAX)?),
            Version::V1 => cgroup::cfs(&self.read(CFS_QUOTA)?, &self.read(CFS_PERIOD)?),
        };
        quota.ok_or_else(invalid_content)
    }

    /// Writes a quota. Version 1 has separate files for quota and period: they are written in the
    /// order whose intermediate limit does not exceed the larger of the old and the new one.
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

    /// Checks write access to the quota.
    pub fn may_write(&self) -> io::Result<()> {
        let name = match self.version {
            Version::V1 => CFS_QUOTA,
            Version::V2 => CPU_MAX,
        };
        let path = self.directory.join(name);
        OpenOptions::new().write(true).open(path).map(|_| ())
    }

    /// Excludes other agents until the claim is dropped; `None` if another agent has it.
    pub(super) fn claim(&self) -> io::Result<Option<Claim>> {
        Claim::of(&self.directory)
    }

    fn read(&self, name: &str) -> io::Result<String> {
        let file = File::open(self.directory.join(name))?;
        text(&file).ok_or_else(invalid_content)
    }

    /// Must not create a missing file: the files are the kernel's.
    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        let path = self.directory.join(name);
        let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
        file.write_all(value.as_bytes())
    }
}

/// Reads a whole small file that stays open; `None` if it is gone, too large or not text.
pub(super) fn text(file: &File) -> Option<String> {
    let mut bytes = vec![0; FILE_SIZE_MAX];
    let size = file.read_at(&mut bytes, 0).ok()?;
    if size == FILE_SIZE_MAX {
        return None;
    }
    bytes.truncate(size);
    String::from_utf8(bytes).ok()
}

/// Whether the error is only that too many files are open.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|short| number == Some(short.raw_os_error()))
}

fn invalid_content() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its content is not valid")
}
