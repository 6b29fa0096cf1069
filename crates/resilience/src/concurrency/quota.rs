//! The processor quota of this process's container, from its control group (version 2).

use std::fs;
use std::path::Path;

/// Returns the quota in processors: the smallest of the process's group and its ancestors, or `None` if there is no
/// limit.
pub(crate) fn of_this_process() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    least(Path::new("/sys/fs/cgroup"), &groups)
}

fn least(mount: &Path, groups: &str) -> Option<f64> {
    // The only line of version 2 begins like this.
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let own = mount.join(own);
    own.ancestors()
        .take_while(|group| group.starts_with(mount))
        .filter_map(|group| quota(&fs::read_to_string(group.join("cpu.max")).ok()?))
        .min_by(f64::total_cmp)
}

/// Parses `cpu.max`: `50000 100000`, microseconds per period in microseconds, is half a processor; `max 100000` is no
/// limit.
fn quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim_end().split_once(' ')?;
    let [quota, period] = [quota, period].map(|micros| micros.parse::<u32>().ok());
    Some(f64::from(quota?) / f64::from(period.filter(|period| *period > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_a_share_of_processors_or_none() {
        assert_eq!(quota("50000 100000\n"), Some(0.5));
        assert_eq!(quota("250000 100000\n"), Some(2.5));
        for none in ["max 100000\n", "", "50000", "50000 0"] {
            assert_eq!(quota(none), None, "{none}");
        }
    }

    #[test]
    fn the_least_of_a_group_and_those_around_it_counts() {
        let mount = std::env::temp_dir().join(format!("wardgate-quota-{}", std::process::id()));
        let pod = mount.join("pods/one");
        let container = pod.join("container");
        fs::create_dir_all(&container).unwrap();
        fs::write(pod.join("cpu.max"), "150000 100000\n").unwrap();
        fs::write(container.join("cpu.max"), "max 100000\n").unwrap();
        let own = "0::/pods/one/container\n";
        assert_eq!(least(&mount, own), Some(1.5));
        fs::write(container.join("cpu.max"), "50000 100000\n").unwrap();
        assert_eq!(least(&mount, own), Some(0.5));
        // A container with its own namespace sees no groups but its own.
        assert_eq!(least(&container, "0::/\n"), Some(0.5));
        assert_eq!(least(&mount, "0::/\n"), None);
        assert_eq!(least(&mount, "4:cpu:/pods/one\n"), None, "version 1");
        fs::remove_dir_all(mount).unwrap();
    }
}
