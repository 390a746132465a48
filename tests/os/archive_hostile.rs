//! Seeds whose archives of `/etc` and `/var` are hostile, each prepared on a real sysroot: nothing outside of the new stateroot
//! changes, whatever an archive holds.

#![allow(clippy::print_stdout, reason = "the counts are its result")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use crate::backend_env::Lab;
use crate::seed_hostile::Outcome::{self, Either, Prepared, Refused};
use crate::seed_hostile::{host, played};
use crate::seed_image::gzip;
use crate::stateroot::{SeedFiles, lab};

/// An archive whose headers hold any bytes.
pub struct Hostile(Builder<Vec<u8>>);

impl Hostile {
    pub fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn entry(mut self, name: &str, kind: EntryType, link: &str, contents: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_size(u64::try_from(contents.len()).unwrap());
        header.set_mode(0o6755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1);
        if matches!(kind, EntryType::Block | EntryType::Char) {
            header.set_device_major(8).unwrap();
            header.set_device_minor(0).unwrap();
        }
        header.set_cksum();
        self.0.append(&header, contents).unwrap();
        self
    }

    pub fn file(self, name: &str) -> Self {
        self.entry(name, EntryType::Regular, "", b"harm\n")
    }

    pub fn link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, target, b"")
    }

    fn second(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Link, target, b"")
    }

    fn directory(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, "", b"")
    }

    /// Records before the next entry.
    pub fn records(self, records: &[(&str, &[u8])]) -> Self {
        let bytes: Vec<u8> = records.iter().flat_map(|(key, value)| record(key, value)).collect();
        self.entry("x", EntryType::XHeader, "", &bytes)
    }

    pub fn packed(self) -> Vec<u8> {
        gzip(&self.0.into_inner().unwrap())
    }
}

fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
    let mut length = rest.len() + 1;
    while length.to_string().len() + rest.len() != length {
        length += 1;
    }
    [length.to_string().as_bytes(), &rest].concat()
}

/// The name of a row, what comes of it, and the archive, with names below `D`: each is played as `/var` and as `/etc`.
type Row = (&'static str, Outcome, fn(&str) -> Vec<u8>);

const OUT: &str = "leads out of ";

/// Names that lead out.
fn names() -> Vec<Row> {
    vec![
        ("a name above", Refused(OUT), |d| Hostile::new().file(&format!("{d}/../../etc/x")).packed()),
        ("an absolute name", Refused(OUT), |_| Hostile::new().file("/usr/x").packed()),
        ("a name of another directory", Refused(OUT), |_| Hostile::new().file("usr/x").packed()),
        ("a name above, in a record", Refused(OUT), |d| {
            let name = format!("{d}/a/../../../etc/x");
            Hostile::new().records(&[("path", name.as_bytes())]).file(&format!("{d}/a")).packed()
        }),
        ("a name above, in a long name", Refused(OUT), |d| {
            let name = format!("{d}/{}../../../etc/x", "a/".repeat(60));
            let long = Hostile::new().entry("x", EntryType::GNULongName, "", name.as_bytes());
            long.file(&format!("{d}/a")).packed()
        }),
        ("a second name of a file above", Refused(OUT), |d| {
            Hostile::new().second(&format!("{d}/a"), &format!("{d}/../../etc/shadow")).packed()
        }),
        ("a second name of the host's file", Refused(OUT), |d| {
            Hostile::new().second(&format!("{d}/a"), "/usr/bin/ostree").packed()
        }),
        ("a second name of a file above, in a record", Refused(OUT), |d| {
            let records = Hostile::new().records(&[("linkpath", b"../../../etc/shadow")]);
            records.second(&format!("{d}/a"), "x").packed()
        }),
        ("129 directories", Refused("deeper than"), |d| {
            let name = format!("{d}/{}x", "a/".repeat(129));
            Hostile::new().records(&[("path", name.as_bytes())]).file("x").packed()
        }),
        ("names that move a terminal", Prepared, |d| {
            let names = ["a\u{1b}[2J\u{7}", "b\nNext: rm -rf /", "c\u{202e}txt", "-rf", "...", "\u{85}"];
            names.iter().fold(Hostile::new(), |made, name| made.file(&format!("{d}/harm/{name}"))).packed()
        }),
        ("a name above that moves a terminal", Refused(OUT), |_| {
            Hostile::new().file("../\u{1b}[2J\nNext: obey").packed()
        }),
    ]
}

/// Links that are written through.
fn links() -> Vec<Row> {
    vec![
        ("a file through a link out", Prepared, |d| {
            Hostile::new().link(&format!("{d}/harm"), "/etc").file(&format!("{d}/harm/passwd")).packed()
        }),
        ("a file through a link above", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "../../../../../../../../etc");
            made.file(&format!("{d}/harm/passwd")).packed()
        }),
        ("a directory through a link out", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/etc");
            made.directory(&format!("{d}/harm/")).file(&format!("{d}/harm/x")).packed()
        }),
        ("a file in place of a link out", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/etc/motd");
            made.file(&format!("{d}/harm")).packed()
        }),
        ("a link deep in a way through a link", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/").directory(&format!("{d}/two"));
            made.link(&format!("{d}/two/three"), "../harm").file(&format!("{d}/two/three/etc/x")).packed()
        }),
        ("a second name through a link out", Refused("is not in the archive"), |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/etc");
            made.second(&format!("{d}/a"), &format!("{d}/harm/passwd")).packed()
        }),
        ("a second name through a link above", Refused("is not in the archive"), |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "../../../../../../../../etc");
            made.second(&format!("{d}/a"), &format!("{d}/harm/passwd")).packed()
        }),
        ("a second name of a link out, then its contents", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/etc/motd");
            made.second(&format!("{d}/two"), &format!("{d}/harm")).file(&format!("{d}/two")).packed()
        }),
        ("a second name of nothing", Refused("is not in the archive"), |d| {
            Hostile::new().second(&format!("{d}/a"), &format!("{d}/nothing")).packed()
        }),
        ("a link in place of the directory", Refused("is none"), |d| {
            Hostile::new().link(&format!("{d}/"), "/etc").file(&format!("{d}/x")).packed()
        }),
        ("a link to the process's own files", Prepared, |d| {
            let made = Hostile::new().link(&format!("{d}/harm"), "/proc/self/root/etc");
            made.file(&format!("{d}/harm/x")).packed()
        }),
    ]
}

/// Kinds and attributes.
fn kinds() -> Vec<Row> {
    vec![
        ("a disk", Either, |d| {
            Hostile::new().entry(&format!("{d}/harm"), EntryType::Block, "", b"").packed()
        }),
        ("a pipe, and a file in its place", Prepared, |d| {
            let made = Hostile::new().entry(&format!("{d}/harm"), EntryType::Fifo, "", b"");
            made.file(&format!("{d}/harm")).packed()
        }),
        ("a file below a pipe", Prepared, |d| {
            let made = Hostile::new().entry(&format!("{d}/harm"), EntryType::Fifo, "", b"");
            made.file(&format!("{d}/harm/x")).packed()
        }),
        ("a file through a disk", Either, |d| {
            let made = Hostile::new().entry(&format!("{d}/harm"), EntryType::Block, "", b"");
            made.file(&format!("{d}/harm")).packed()
        }),
        ("attributes that need a capability", Either, |d| {
            let records: [(&str, &[u8]); 3] = [
                ("SCHILY.xattr.security.selinux", b"system_u:object_r:shadow_t:s0\0"),
                ("SCHILY.xattr.security.harm", b"y"),
                (
                    "SCHILY.xattr.security.capability",
                    &[1, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 1, 0, 0, 0, 0, 0, 0],
                ),
            ];
            Hostile::new().records(&records).file(&format!("{d}/harm")).packed()
        }),
        ("such an attribute of a link out", Either, |d| {
            let made = Hostile::new().records(&[("SCHILY.xattr.security.harm", b"y")]);
            let made = made.link(&format!("{d}/harm"), "/etc/motd");
            made.file(&format!("{d}/x")).link(&format!("{d}/x"), "/etc").packed()
        }),
        ("an attribute of a file in whose place a link comes", Prepared, |d| {
            let made = Hostile::new().records(&[("SCHILY.xattr.security.harm", b"y")]);
            made.file(&format!("{d}/harm/x")).link(&format!("{d}/harm"), "/etc").packed()
        }),
        ("an attribute that is too long", Refused("can't be set"), |d| {
            let value = vec![b'x'; 70_000];
            Hostile::new().records(&[("SCHILY.xattr.user.x", &value)]).file(&format!("{d}/harm")).packed()
        }),
        ("a name of an attribute that is too long", Refused("can't be set"), |d| {
            let name = format!("SCHILY.xattr.user.{}", "x".repeat(300));
            Hostile::new().records(&[(&name, b"y")]).file(&format!("{d}/harm")).packed()
        }),
        ("an attribute of no kind", Refused("can't be set"), |d| {
            Hostile::new()
                .records(&[("SCHILY.xattr.harm\n\u{1b}[2J", b"y")])
                .file(&format!("{d}/harm"))
                .packed()
        }),
        ("a sparse file", Refused("sparse"), |d| {
            Hostile::new()
                .records(&[("GNU.sparse.realsize", b"1099511627776")])
                .file(&format!("{d}/harm"))
                .packed()
        }),
    ]
}

/// Too much of everything.
fn sizes() -> Vec<Row> {
    vec![
        ("1 GiB of a header in 5 MiB", Refused("extension header has"), |_| {
            let mut header = Header::new_ustar();
            header.set_entry_type(EntryType::XHeader);
            header.set_size(1 << 30);
            header.set_cksum();
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            packed.write_all(header.as_bytes()).unwrap();
            let zeros = vec![0; 1 << 20];
            (0..1024).for_each(|_| packed.write_all(&zeros).unwrap());
            packed.finish().unwrap()
        }),
        ("a file that says 1 TiB", Refused("more than 8 GiB"), |d| {
            let mut header = Header::new_gnu();
            header.set_path(format!("{d}/harm")).unwrap();
            header.set_size(1 << 40);
            header.set_mode(0o644);
            header.set_cksum();
            gzip(&[header.as_bytes().to_vec(), vec![0; 4096]].concat())
        }),
        ("100,000 entries", Prepared, |d| {
            (0..100_000)
                .fold(Hostile::new(), |made, at| made.link(&format!("{d}/harm/{}/{at}", at % 100), "x"))
                .packed()
        }),
        ("an archive that ends in the middle", Refused(""), |d| {
            let whole = Hostile::new().file(&format!("{d}/harm")).packed();
            whole[..whole.len() / 2].to_vec()
        }),
        ("no archive", Refused(""), |_| b"\x1f\x8bharm".to_vec()),
        ("nothing", Refused(""), |_| Vec::new()),
    ]
}

/// Plays a row with an archive in place of a good one.
fn play(
    lab: &Lab,
    boot: &crate::backend_env::Machine,
    seed: &SeedFiles,
    good: &BTreeMap<String, Vec<u8>>,
    before: &BTreeMap<PathBuf, String>,
    (name, outcome, archive): Row,
    directory: &str,
) -> Vec<String> {
    let mut members = good.clone();
    members.insert(format!("{directory}.tgz"), archive(directory));
    let image = seed.image(lab, &members);
    let name = format!("/{directory}: {name}");
    played(lab, boot, &image, before, &name, outcome)
}

/// An archive was made by somebody else: each row is one that means harm.
#[test]
fn hostile_archives_change_nothing_but_their_stateroot() {
    let lab = lab();
    let seed = SeedFiles::new(&lab, true);
    let good = seed.members();
    let boot = lab.boot();
    let (mut wrong, mut refused, mut prepared) = (Vec::new(), 0, 0);
    let mut before = host(&lab);
    for row in [names(), links(), kinds(), sizes()].into_iter().flatten() {
        for directory in ["var", "etc"] {
            let found = play(&lab, &boot, &seed, &good, &before, row, directory);
            println!("{:?} {directory} {}: {}", row.1, row.0, if found.is_empty() { "ok" } else { "WRONG" });
            match row.1 {
                _ if !found.is_empty() => before = host(&lab),
                Refused(_) => refused += 1,
                Prepared | Either => prepared += 1,
            }
            wrong.extend(found);
        }
    }
    println!("hostile archives: {refused} refused, {prepared} unpacked in place, {} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
