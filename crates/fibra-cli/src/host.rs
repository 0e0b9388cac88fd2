//! The limits of this machine: how many fibers fit into half of its memory, its control group, its address space and its guards.
//!
//! Everything is read from `/proc` and `/sys`, and what cannot be read sets no limit. The parsing is separate from the reading, so
//! that it is tested with texts of other machines.

use std::fs;
use std::path::{Path, PathBuf};

/// The assumed cost of a parked fiber, a little more than what the tour then measures.
const BYTES_PER_FIBER: u64 = 5 << 10;
/// Fibers the tour starts besides the many: left over where guards are counted.
const SPARE_STACKS: u64 = 256;

/// How many fibers, and the limit that applied if it was not the wish.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    pub(crate) fibers: usize,
    /// Why there are not more, as the end of a sentence.
    pub(crate) because: Option<String>,
}

/// As many fibers as `wished`, or as this machine allows with stacks of `stack_size`.
pub(crate) fn allow(wished: usize, stack_size: u64) -> Allowance {
    let limits = [memory_limit(), group_limit(), address_limit(stack_size), guard_limit()];
    let tightest = limits.into_iter().flatten().min_by_key(|limit| limit.0);
    match tightest {
        Some((fibers, because)) if (fibers as usize) < wished => {
            Allowance { fibers: (fibers as usize).max(1), because: Some(because) }
        }
        _ => Allowance { fibers: wished, because: None },
    }
}

/// Resident memory and page tables of this process, in bytes.
pub(crate) fn memory_in_use() -> u64 {
    let status = read("/proc/self/status");
    field(&status, "VmRSS:").unwrap_or(0) + field(&status, "VmPTE:").unwrap_or(0)
}

/// Memory that could be had now, in bytes.
pub(crate) fn memory_available() -> Option<u64> {
    field(&read("/proc/meminfo"), "MemAvailable:")
}

fn memory_limit() -> Option<(u64, String)> {
    let available = memory_available()?;
    let because = format!("half of the {} of memory available holds no more", bytes(available));
    Some((available / 2 / BYTES_PER_FIBER, because))
}

/// The limit of the control group this process is in, and of those above it.
fn group_limit() -> Option<(u64, String)> {
    let folders = group_folders(&read("/proc/self/cgroup"));
    let room = folders.iter().filter_map(|folder| group_room(folder)).min()?;
    let because = format!("half of the {} that its control group leaves holds no more", bytes(room));
    Some((room / 2 / BYTES_PER_FIBER, because))
}

/// The folders of the memory controller, innermost first, for version 2 (`0::/a/b`) and version 1 (`4:memory:/a/b`).
fn group_folders(text: &str) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let mount = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            names if names.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        // In a container the path may be the host's; then only the mount itself is there.
        let inner = mount.join(path.trim_start_matches('/'));
        folders.extend(inner.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_path_buf));
    }
    folders
}

/// The memory that one control group leaves: its limit, less the memory in use, of which the page cache does not count.
fn group_room(folder: &Path) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    // Version 1 says "no limit" with a number close to 2^63.
    if limit >= 1 << 60 {
        return None;
    }
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes")).unwrap_or(0);
    let stat = fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cache)))
}

/// `ulimit -v`, and kernels that do not overcommit: there a stack costs what it reserves.
fn address_limit(stack_size: u64) -> Option<(u64, String)> {
    let limited = address_space_limit(&read("/proc/self/limits"));
    if let Some(limit) = limited {
        let because = format!("the address space is limited to {} (ulimit -v)", bytes(limit));
        return Some((limit / 2 / stack_size, because));
    }
    if read("/proc/sys/vm/overcommit_memory").trim() == "2" {
        let text = read("/proc/meminfo");
        let left = field(&text, "CommitLimit:")?.saturating_sub(field(&text, "Committed_AS:")?);
        let because = format!("vm.overcommit_memory is 2 and {} are left to reserve", bytes(left));
        return Some((left / 2 / stack_size, because));
    }
    None
}

fn address_space_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Guards by `mprotect` take two mappings per stack, and leave a twelfth of all mappings to the rest of the process.
fn guard_limit() -> Option<(u64, String)> {
    let forced = std::env::var_os("FIBRA_GUARD").is_some_and(|value| value == "mprotect");
    let release = read("/proc/sys/kernel/osrelease");
    let why = if forced {
        "FIBRA_GUARD=mprotect".to_owned()
    } else if has_light_guards(&release) {
        return None;
    } else {
        format!("Linux {} (before 6.13)", release.trim())
    };
    let most = read("/proc/sys/vm/max_map_count").trim().parse().unwrap_or(65_530_u64);
    let because = format!("with {why} a stack takes two of {} mappings (vm.max_map_count)", count(most));
    Some((((most - most / 12) / 2).saturating_sub(SPARE_STACKS), because))
}

/// Does this kernel have `MADV_GUARD_INSTALL`? (6.13 and later.)
fn has_light_guards(release: &str) -> bool {
    let mut numbers = release.trim().split(|c: char| !c.is_ascii_digit()).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 13)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// A line such as `VmRSS:  1234 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? << 10)
}

/// A number with separators: 1,000,000.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// An amount of memory: 22.3 GiB.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut amount = number as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < units.len() {
        amount /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || amount.fract() < 0.05 { 0 } else { 1 };
    format!("{amount:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(30_036), "30,036");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(bytes(900), "900 bytes");
        assert_eq!(bytes(256 << 10), "256 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
    }

    #[test]
    fn what_the_kernel_says_is_understood() {
        let status = "Name:\tfibra\nVmRSS:\t   12 kB\nVmPTE:\t    4 kB\n";
        assert_eq!((field(status, "VmRSS:"), field(status, "VmPTE:")), (Some(12 << 10), Some(4 << 10)));
        assert_eq!(field(status, "VmSwap:"), None);
        let limits =
            "Limit  Soft Limit  Hard Limit  Units\nMax address space         1048576      unlimited    bytes\n";
        assert_eq!(address_space_limit(limits), Some(1 << 20));
        assert_eq!(address_space_limit("Max address space    unlimited   unlimited  bytes\n"), None);
        for (release, light) in [
            ("6.18.44-fc", true),
            ("6.13.0", true),
            ("7.0", true),
            ("6.12.99", false),
            ("5.15.0-91", false),
            ("", false),
        ] {
            assert_eq!(has_light_guards(release), light, "{release}");
        }
    }

    #[test]
    fn control_groups_of_both_versions_are_found() {
        let two = group_folders("0::/user.slice/app\n");
        assert_eq!(two[0], Path::new("/sys/fs/cgroup/user.slice/app"));
        assert_eq!(two.last().unwrap(), Path::new("/sys/fs/cgroup"));
        let one = group_folders("9:cpu,cpuacct:/x\n4:memory:/docker/abc\n");
        assert_eq!(one[0], Path::new("/sys/fs/cgroup/memory/docker/abc"));
        assert_eq!(one.last().unwrap(), Path::new("/sys/fs/cgroup/memory"));
    }

    #[test]
    fn the_room_of_a_control_group() {
        let folder = std::env::temp_dir().join(format!("fibra-cli-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(group_room(&folder), None);
        fs::write(folder.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_room(&folder), None, "no limit");
        fs::write(folder.join("memory.max"), "1000000\n").unwrap();
        fs::write(folder.join("memory.current"), "600000\n").unwrap();
        fs::write(folder.join("memory.stat"), "anon 1\ninactive_file 100000\n").unwrap();
        assert_eq!(group_room(&folder), Some(500_000), "the page cache can go");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_small_wish_is_granted_and_a_huge_one_is_not() {
        assert_eq!(allow(1, 256 << 10), Allowance { fibers: 1, because: None });
        let huge = allow(usize::MAX, 256 << 10);
        assert!(huge.because.is_some() && huge.fibers < usize::MAX, "{huge:?}");
    }
}
