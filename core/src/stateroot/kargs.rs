//! The kernel arguments of a new stateroot's deployment.
//!
//! libostree merges none from another stateroot, so the list is made here: what this machine needs to find its disks and its
//! console, the seed's own, FIPS, and the mark of the version. They stay words, never a shell's line.

use super::Version;
use crate::model::Karg;

/// Arguments that are carried over from the running system: a name, or with `*` at its end the beginning of one.
pub const CARRIED_OVER: [&str; 10] = [
    "root",
    "rootflags",
    "rootfstype",
    "ro",
    "rw",
    "boot",
    "rd.*",
    "resume",
    "console",
    "ignition.platform.id",
];

/// Returns the arguments: of the host those that are carried over, then the seed's.
pub fn seed_kargs(
    host: &[Karg],
    carried: &[String],
    seed: &[Karg],
    fips: bool,
    version: &Version,
) -> Vec<Karg> {
    let matches = |karg: &Karg| {
        let name = name(karg);
        CARRIED_OVER.into_iter().chain(carried.iter().map(String::as_str)).any(|known| {
            known.strip_suffix('*').map_or_else(|| known == name, |beginning| name.starts_with(beginning))
        })
    };
    let mut kargs: Vec<Karg> = host.iter().filter(|karg| matches(karg)).cloned().collect();
    let named = |kargs: &[Karg], wanted: &str| kargs.iter().any(|karg| name(karg) == wanted);
    if fips {
        let mut pair = Karg::split("fips=1 boot=LABEL=boot");
        // The host's own says where its /boot is.
        pair.retain(|karg| name(karg) != "boot" || !(named(&kargs, "boot") || named(seed, "boot")));
        pair.retain(|karg| !seed.contains(karg));
        kargs.extend(pair);
    }
    let own: Vec<Karg> = seed
        .iter()
        .filter(|karg| name(karg) != "ibu" && !karg.is_of_ostree() && !kargs.contains(karg))
        .cloned()
        .collect();
    kargs.extend(own);
    kargs.extend(Karg::split(&format!("ibu={version}")));
    kargs
}

fn name(karg: &Karg) -> &str {
    karg.as_str().split('=').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kargs: &[Karg]) -> Vec<&str> {
        kargs.iter().map(Karg::as_str).collect()
    }

    fn version() -> Version {
        Version::new("4.17.2").unwrap()
    }

    /// LCA-009: what finds the disks and the console is carried over, and what an administrator names; nothing else.
    #[test]
    fn declared_host_arguments_are_carried_over() {
        let host = Karg::split(
            "root=UUID=1 rw rd.lvm.lv=a/b rdinit=x quiet ip=dhcp console=tty0 console=ttyS0 rootflags=x",
        );
        let carried = ["ip".to_owned()];
        let kargs = seed_kargs(&host, &carried, &[], false, &version());
        let expected = [
            "root=UUID=1",
            "rw",
            "rd.lvm.lv=a/b",
            "ip=dhcp",
            "console=tty0",
            "console=ttyS0",
            "rootflags=x",
            "ibu=4.17.2",
        ];
        assert_eq!(words(&kargs), expected);
    }

    #[test]
    fn fips_pair_is_added_once_and_keeps_the_hosts_boot() {
        let fips = |host: &str, seed: &str| {
            let kargs = seed_kargs(&Karg::split(host), &[], &Karg::split(seed), true, &version());
            words(&kargs).join(" ")
        };
        assert_eq!(fips("", "a"), "fips=1 boot=LABEL=boot a ibu=4.17.2");
        assert_eq!(fips("boot=UUID=2", ""), "boot=UUID=2 fips=1 ibu=4.17.2");
        assert_eq!(fips("", "fips=1 boot=LABEL=boot"), "fips=1 boot=LABEL=boot ibu=4.17.2");
    }

    #[test]
    fn strange_characters_survive_and_the_mark_is_unique() {
        let seed = Karg::split(r#"a="b c" d=$HOME e=`id` ibu=4.16.0 ostree=/x"#);
        let kargs = seed_kargs(&[], &[], &seed, false, &version());
        assert_eq!(words(&kargs), [r#"a="b c""#, "d=$HOME", "e=`id`", "ibu=4.17.2"]);
    }
}
