//! Documents of each kind that the programs read, with the answer that every entry of both programs gives.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

/// Answer that a row expects.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    Taken,
    /// Refused in a file of a person, named in a cluster.
    Unknown(&'static str),
    Refused(&'static str),
}

use Expect::{Refused, Taken, Unknown};

impl Expect {
    /// The field that is refused in a file of a person.
    pub fn refused_in_file(self) -> Option<&'static str> {
        match self {
            Taken => None,
            Unknown(field) | Refused(field) => Some(field),
        }
    }
}

pub type Row = (Expect, &'static str);

/// Specs of a MachineConfig.
const SPECS: &[Row] = &[
    (Taken, "{}"),
    (Refused("spec"), "null"),
    (Taken, "{config: {}}"),
    (Taken, "{config: null}"),
    (Taken, "{config: {ignition: {version: 3.0.0}}}"),
    (Taken, "{config: {ignition: {version: 3.6.0}}}"),
    (Taken, "{kernelArguments: []}"),
    (Taken, "{kernelArguments: [quiet, 'a=b c=d']}"),
    (Taken, "{kernelArguments: null}"),
    (Taken, "{kernelType: ''}"),
    (Taken, "{kernelType: realtime}"),
    (Taken, "{kernelType: default}"),
    (Taken, "{extensions: [usbguard]}"),
    (Refused("spec.extensions \"\""), "{extensions: ['']}"),
    (Taken, "{fips: true}"),
    (Taken, "{fips: false}"),
    (Taken, "{osImageURL: ''}"),
    (
        Taken,
        "{osImageURL: 'r.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
    ),
    (
        Taken,
        "{osImageURL: 'r.test/os:4.17@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
    ),
    (
        Taken,
        "{baseOSExtensionsContainerImage: 'r.test:5000/os/x:4.17@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}",
    ),
    (Refused("spec.osImageURL"), "{osImageURL: 'r.test/os:4.17'}"),
    (Refused("spec.kernelType \"fast\""), "{kernelType: fast}"),
    (Refused("spec.kernelArguments"), "{kernelArguments: quiet}"),
    (Refused("spec.kernelArguments[1]"), "{kernelArguments: [a, 5]}"),
    (Refused("spec.kernelArguments[0]"), "{kernelArguments: [{a: b}]}"),
    (Refused("spec.kernelArguments \"a=\\\"b\""), "{kernelArguments: ['a=\"b']}"),
    (Refused("spec.kernelType"), "{kernelType: 5}"),
    (Refused("spec.kernelType"), "{kernelType: [realtime]}"),
    (Refused("spec.extensions"), "{extensions: usbguard}"),
    (Refused("spec.extensions[0]"), "{extensions: [1]}"),
    (Refused("spec.extensions \"Bad Name\""), "{extensions: [Bad Name]}"),
    (Refused("spec.fips"), "{fips: 'true'}"),
    (Refused("spec.fips"), "{fips: 1}"),
    (Refused("spec.osImageURL"), "{osImageURL: 5}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {}}}"),
    (Refused("spec.config.ignition.version"), "{config: {storage: {}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 2.2.0}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.7.0}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2.1}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2.0-experimental}}}"),
    (Refused("spec.config.ignition.version"), "{config: {ignition: {version: 3.2}}}"),
    (Refused("spec.config"), "{config: text}"),
    (Refused("spec.config"), "{config: [text]}"),
    (Refused("spec.config"), "{config: 5}"),
    (Refused("spec.config"), "{config: true}"),
    (Refused("spec.config"), "{config: []}"),
    (Refused("spec"), "[]"),
    (Refused("spec"), "text"),
    (Refused("spec.kernelArguments \"ostree=/a\""), "{kernelArguments: ['a=b ostree=/a']}"),
    (Refused("spec.kernelArguments \"initrd=a\""), "{kernelArguments: [initrd=a]}"),
    (Refused("spec.kernelArguments \"\\\"ostree=a\\\"\""), "{kernelArguments: ['\"ostree=a\"']}"),
    (Taken, "{kernelArguments: [\"a\\nb\", ostree.a=b]}"),
    (Unknown("spec.kernelargs"), "{kernelargs: [quiet]}"),
    (Unknown("spec.kernelArgs"), "{kernelArgs: [quiet]}"),
    (Unknown("spec.osImageUrl"), "{osImageUrl: x}"),
    (Unknown("spec.kernel"), "{kernel: {type: realtime}}"),
    (Unknown("spec.extension"), "{extension: [usbguard]}"),
    (Unknown("spec.FIPS"), "{FIPS: true}"),
    (Unknown("spec.storage"), "{storage: {files: []}}"),
    (Unknown("spec.ignition"), "{ignition: {version: 3.2.0}}"),
];

/// Parts of an Ignition config of version 3.4.0.
const IGNITION: &[Row] = &[
    (Taken, "storage: {}"),
    (Taken, "storage: null"),
    (Taken, "storage: {files: []}"),
    (Taken, "storage: {files: [{path: /etc/a}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0644}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0o600}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 420}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: null}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0777}]}"),
    (Taken, "storage: {files: [{path: /etc/a, mode: 0x1ff}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {source: 'data:,a'}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {source: null}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {compression: '', source: 'data:;base64,YQ=='}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {compression: gzip}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, contents: {source: null, compression: gzip}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, user: {name: core}, group: {id: 0}}]}"),
    (Taken, "storage: {files: [{path: /etc/a, overwrite: true, contents: {source: 'data:,x'}}]}"),
    (Refused("storage.files \"/etc/a\" overwrite"), "storage: {files: [{path: /etc/a, overwrite: true}]}"),
    (Taken, "systemd: {units: []}"),
    (Taken, "systemd: {units: [{name: a.service, contents: '[Unit]', enabled: true}]}"),
    (Taken, "systemd: {units: [{name: a.service, dropins: [{name: 1.conf, contents: '[Unit]'}]}]}"),
    (Taken, "systemd: {units: [{name: a.service, mask: true}]}"),
    (Taken, "passwd: {users: [{name: core, sshAuthorizedKeys: [ssh-ed25519 AAAA]}]}"),
    (Taken, "passwd: {users: [{name: core, passwordHash: $6$a}]}"),
    (Taken, "passwd: {users: []}"),
    (Taken, "storage: {directories: [{path: /etc/a, mode: 0750}]}"),
    (Taken, "storage: {links: [{path: /etc/a, target: b}]}"),
    (Taken, "storage: {files: [{path: /etc/b}], links: [{path: /etc/a, target: /etc/b, hard: true}]}"),
    (Taken, "storage: {disks: [{device: /dev/vda, wipeTable: true, partitions: [{number: 1, label: a}]}]}"),
    (Taken, "storage: {raid: [{name: md0, level: raid1, devices: [/dev/a, /dev/b]}]}"),
    (Taken, "storage: {filesystems: [{device: /dev/a, path: /var, format: xfs}]}"),
    (Taken, "storage: {luks: [{name: data, device: /dev/a, clevis: {tpm2: true}}]}"),
    (Taken, "storage: {luks: [{name: data, device: /dev/a, keyFile: {source: 'data:,a'}}]}"),
    (Taken, "passwd: {groups: [{name: app, gid: 1500}]}"),
    (Taken, "kernelArguments: {shouldExist: [quiet], shouldNotExist: [debug]}"),
    (Refused("storage.raid \"md0\" level"), "storage: {raid: [{name: md0, devices: [/dev/a]}]}"),
    (Refused("storage.raid \"md0\" level"), "storage: {raid: [{name: md0, level: '7', devices: [/dev/a]}]}"),
    (Refused("storage.raid \"md0\" devices"), "storage: {raid: [{name: md0, level: raid1}]}"),
    (Refused("storage.links \"/etc/a\" target"), "storage: {links: [{path: /etc/a}]}"),
    (
        Refused("storage.filesystems \"/dev/a\" format"),
        "storage: {filesystems: [{device: /dev/a, path: /var}]}",
    ),
    (
        Refused("storage.luks \"data\" keyFile source"),
        "storage: {luks: [{name: data, device: /dev/a, keyFile: {source: 'oem:///key'}}]}",
    ),
    (Refused("storage.luks \"data\" device"), "storage: {luks: [{name: data}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 644}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 755}]}"),
    (Refused("storage.directories \"/etc/a\" mode"), "storage: {directories: [{path: /etc/a, mode: 755}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 600}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: -1}]}"),
    (Refused("storage.files \"/etc/a\" mode"), "storage: {files: [{path: /etc/a, mode: 04755}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: '0644'}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: 420.5}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: true}]}"),
    (Refused("spec.config.storage.files[0].mode"), "storage: {files: [{path: /etc/a, mode: 0o}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{mode: 420}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{path: 5}]}"),
    (Refused("spec.config.storage.files[0].path"), "storage: {files: [{path: null}]}"),
    (Refused("spec.config.storage.files"), "storage: {files: {path: /etc/a}}"),
    (Refused("spec.config.storage.files[1]"), "storage: {files: [{path: /etc/a}, /etc/b]}"),
    (Refused("spec.config.storage"), "storage: 5"),
    (Refused("spec.config.storage"), "storage: text"),
    (Refused("spec.config.passwd"), "passwd: text"),
    (Refused("spec.config.passwd"), "passwd: []"),
    (Refused("spec.config.passwd.users"), "passwd: {users: text}"),
    (Refused("spec.config.passwd.users[0]"), "passwd: {users: [text]}"),
    (Refused("spec.config.passwd.groups[0]"), "passwd: {groups: [[text]]}"),
    (Refused("spec.config.systemd"), "systemd: text"),
    (Refused("spec.config.systemd.units[0]"), "systemd: {units: [text]}"),
    (Refused("spec.config.kernelArguments"), "kernelArguments: text"),
    (Refused("spec.config.storage.directories"), "storage: {directories: text}"),
    (Refused("spec.config.storage.links[0]"), "storage: {links: [5]}"),
    (Refused("spec.config.storage.files[0].user"), "storage: {files: [{path: /etc/a, user: root}]}"),
    (Refused("spec.config.storage.disks[0]"), "storage: {disks: [/dev/vda]}"),
    (Refused("spec.config.storage"), "storage: []"),
    (Refused("spec.config.storage.files[0]"), "storage: {files: [[/etc/a]]}"),
    (
        Refused("spec.config.systemd.units[0].dropins[0]"),
        "systemd: {units: [{name: a.service, dropins: [[a.conf]]}]}",
    ),
    (Refused("storage.files \"etc/a\""), "storage: {files: [{path: etc/a}]}"),
    (Refused("storage.files \"/etc/../a\""), "storage: {files: [{path: /etc/../a}]}"),
    (Refused("storage.files \"\""), "storage: {files: [{path: ''}]}"),
    (Refused("storage.files \"/etc/a\""), "storage: {files: [{path: /etc/a}, {path: /etc/a}]}"),
    (Refused("storage.files \"/etc/a/b\""), "storage: {files: [{path: /etc/a}, {path: /etc/a/b}]}"),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'https://a.test'}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:;base64,@'}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:,a', compression: xz}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" contents"),
        "storage: {files: [{path: /etc/a, contents: {source: 'data:,a', verification: {hash: md5-1}}}]}",
    ),
    (Refused("spec.config.storage.files[0].contents"), "storage: {files: [{path: /etc/a, contents: text}]}"),
    (
        Refused("spec.config.storage.files[0].contents.source"),
        "storage: {files: [{path: /etc/a, contents: {source: 1}}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" append"),
        "storage: {files: [{path: /etc/a, append: [{source: 'data:,a'}]}]}",
    ),
    (
        Refused("storage.files \"/etc/a\" user"),
        "storage: {files: [{path: /etc/a, user: {name: Not A User}}]}",
    ),
    (Refused("storage.files \"/etc/a\" user"), "storage: {files: [{path: /etc/a, user: {id: -1}}]}"),
    (Refused("spec.config.storage.files[0].user.id"), "storage: {files: [{path: /etc/a, user: {id: root}}]}"),
    (Refused("spec.config.systemd.units[0].name"), "systemd: {units: [{contents: a}]}"),
    (
        Refused("spec.config.systemd.units[0].enabled"),
        "systemd: {units: [{name: a.service, enabled: 'yes'}]}",
    ),
    (Refused("spec.config.systemd.units[0].enabled"), "systemd: {units: [{name: a.service, enabled: 1}]}"),
    (Refused("spec.config.systemd.units"), "systemd: {units: {a.service: {}}}"),
    (Refused("systemd.units \"a\""), "systemd: {units: [{name: a}]}"),
    (Refused("systemd.units \"../a.service\""), "systemd: {units: [{name: ../a.service}]}"),
    (Refused("systemd.units \"a.service\""), "systemd: {units: [{name: a.service}, {name: a.service}]}"),
    (
        Refused("systemd.units \"a.service\""),
        "systemd: {units: [{name: a.service, mask: true, enabled: true}]}",
    ),
    (
        Refused("systemd.units \"a.service\" dropins \"a\""),
        "systemd: {units: [{name: a.service, dropins: [{name: a, contents: b}]}]}",
    ),
    (
        Refused("spec.config.systemd.units[0].dropins[0].name"),
        "systemd: {units: [{name: a.service, dropins: [{contents: b}]}]}",
    ),
    (Refused("spec.config.passwd.users[0].name"), "passwd: {users: [{sshAuthorizedKeys: []}]}"),
    (
        Refused("spec.config.passwd.users[0].sshAuthorizedKeys"),
        "passwd: {users: [{name: core, sshAuthorizedKeys: ssh-rsa}]}",
    ),
    (Refused("spec.config.passwd.users[0].uid"), "passwd: {users: [{name: core, uid: '5'}]}"),
    (Refused("passwd.users \"core\""), "passwd: {users: [{name: core}, {name: core}]}"),
    (Unknown("spec.config.storge"), "storge: {files: []}"),
    (Unknown("spec.config.Storage"), "Storage: {files: []}"),
    (Unknown("spec.config.files"), "files: []"),
    (Unknown("spec.config.storage.file"), "storage: {file: []}"),
    (
        Unknown("spec.config.storage.files[0].content"),
        "storage: {files: [{path: /etc/a, content: {inline: a}}]}",
    ),
    (Unknown("spec.config.storage.files[0].mod"), "storage: {files: [{path: /etc/a, mod: 420}]}"),
    (
        Unknown("spec.config.storage.files[1].contents.inline"),
        "storage: {files: [{path: /etc/a}, {path: /etc/b, contents: {inline: a}}]}",
    ),
    (
        Unknown("spec.config.storage.files[0].contents.local"),
        "storage: {files: [{path: /etc/a, contents: {local: a}}]}",
    ),
    (
        Unknown("spec.config.storage.files[0].filesystem"),
        "storage: {files: [{path: /etc/a, filesystem: root}]}",
    ),
    (Unknown("spec.config.storage.files[0].user.uid"), "storage: {files: [{path: /etc/a, user: {uid: 5}}]}"),
    (Unknown("spec.config.storage.trees"), "storage: {trees: []}"),
    (Unknown("spec.config.systemd.unit"), "systemd: {unit: []}"),
    (Unknown("spec.config.systemd.units[0].enable"), "systemd: {units: [{name: a.service, enable: true}]}"),
    (Unknown("spec.config.systemd.units[0].content"), "systemd: {units: [{name: a.service, content: a}]}"),
    (
        Unknown("spec.config.systemd.units[0].contents_local"),
        "systemd: {units: [{name: a.service, contents_local: a}]}",
    ),
    (Unknown("spec.config.systemd.units[0].dropin"), "systemd: {units: [{name: a.service, dropin: []}]}"),
    (Unknown("spec.config.passwd.user"), "passwd: {user: []}"),
    (
        Unknown("spec.config.passwd.users[0].ssh_authorized_keys"),
        "passwd: {users: [{name: core, ssh_authorized_keys: []}]}",
    ),
    (
        Unknown("spec.config.passwd.users[0].password_hash"),
        "passwd: {users: [{name: core, password_hash: a}]}",
    ),
    (Unknown("spec.config.networkd"), "networkd: {units: []}"),
    (Unknown("spec.config.variant"), "variant: fcos"),
    (Unknown("spec.config.kernel_arguments"), "kernel_arguments: {}"),
];

/// Whole Ignition configs with fields of later versions.
const NEWER: &[Row] = &[
    (Refused("spec.config.ignition"), "{ignition: text}"),
    (Refused("spec.config.ignition"), "{ignition: []}"),
    (Refused("spec.config.ignition.version"), "{ignition: {version: 3}}"),
    (
        Unknown("spec.config.kernelArguments"),
        "{ignition: {version: 3.2.0}, kernelArguments: {shouldExist: [a]}}",
    ),
    (Taken, "{ignition: {version: 3.3.0}, kernelArguments: {}}"),
    (Taken, "{ignition: {version: 3.4.0, proxy: {httpProxy: 'http://p.test', noProxy: [a.test]}}}"),
    (Taken, "{ignition: {version: 3.4.0, timeouts: {httpTotal: 30, httpResponseHeaders: 10}}}"),
    (Taken, "{ignition: {version: 3.4.0, security: {tls: {certificateAuthorities: [{source: 'data:,a'}]}}}}"),
    (Taken, "{ignition: {version: 3.4.0, config: {merge: [], replace: {}}}}"),
    (
        Refused("ignition.config.merge"),
        "{ignition: {version: 3.4.0, config: {merge: [{source: 'https://c.test/a'}]}}}",
    ),
    (
        Refused("ignition.config.replace"),
        "{ignition: {version: 3.4.0, config: {replace: {source: 'https://c.test/a'}}}}",
    ),
    (Refused("ignition.proxy.httpProxy"), "{ignition: {version: 3.4.0, proxy: {httpProxy: 'p.test:3128'}}}"),
    (Unknown("spec.config.ignition.proxy"), "{ignition: {version: 3.0.0, proxy: {}}}"),
    (Unknown("spec.config.storage.luks"), "{ignition: {version: 3.1.0}, storage: {luks: []}}"),
    (Unknown("spec.config.ignition.versions"), "{ignition: {version: 3.1.0, versions: 3.2.0}}"),
];

const POOLS: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{maxUnavailable: 1}"),
    (Taken, "{maxUnavailable: 0}"),
    (Taken, "{maxUnavailable: 10%}"),
    (Taken, "{maxUnavailable: 100%}"),
    (Taken, "{maxUnavailable: null}"),
    (Refused("spec"), "[]"),
    (Refused("spec.nodeSelector"), "{nodeSelector: []}"),
    (Taken, "{paused: true}"),
    (Taken, "{pinnedImageSets: [{name: a}]}"),
    (Taken, "{nodeSelector: {matchLabels: {a: b}}}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: abc}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: -1}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: 101%}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '%'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '5'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: '1.5%'}"),
    (Refused("spec.maxUnavailable"), "{maxUnavailable: [1]}"),
    (Refused("spec.paused"), "{paused: 'yes'}"),
    (Refused("spec.nodeSelector.matchLabels.a"), "{nodeSelector: {matchLabels: {a: 1}}}"),
    (Unknown("spec.maxUnavailible"), "{maxUnavailible: 1}"),
    (Unknown("spec.machineConfigSelectors"), "{machineConfigSelectors: {}}"),
    (Refused("spec.configuration.name"), "{configuration: {name: 5}}"),
    (Unknown("spec.nodeSelector.matchLabel"), "{nodeSelector: {matchLabel: {}}}"),
];

const ROLLOUTS: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{canary: {nodes: 1, soak: 30m}}"),
    (Taken, "{windows: [{start: '22:00', length: 4h}]}"),
    (Taken, "{allowedFailures: 5%}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '25:00', length: 4h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:60', length: 4h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: 0h}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: long}]}"),
    (Refused("spec.windows[0]"), "{windows: [{start: '22:00', length: 4h, timeZone: Nowhere/City}]}"),
    (Refused("spec.windows"), "{windows: []}"),
    (Refused("spec.windows[0]"), "{windows: [['22:00', 4h]]}"),
    (Refused("spec.canary"), "{canary: []}"),
    (Refused("spec.windows[0].length"), "{windows: [{start: '22:00'}]}"),
    (Refused("spec.windows[0].days[0]"), "{windows: [{start: '22:00', length: 4h, days: [Someday]}]}"),
    (Refused("spec.canary.nodes"), "{canary: {nodes: few}}"),
    (Refused("spec.canary.nodes"), "{canary: {nodes: 200%}}"),
    (Refused("spec.canary.nodes"), "{canary: {soak: 1h}}"),
    (Refused("spec.nodeTimeout"), "{nodeTimeout: 0s}"),
    (Refused("spec.nodeTimeout"), "{nodeTimeout: soon}"),
    (Refused("spec.allowedFailures"), "{allowedFailures: -1}"),
    (Refused("spec.onFailure"), "{onFailure: Explode}"),
    (Unknown("spec.window"), "{window: []}"),
    (Unknown("spec.canary.node"), "{canary: {nodes: 1, node: 2}}"),
];

const OS_CONFIG: &str = "machineConfigPool: {name: worker}, imageBuilder: {imageBuilderType: Job}, renderedImagePushSecret: \
    {name: a}, renderedImagePushSpec: 'r.test/os:1'";

const OS_CONFIGS: &[Row] = &[
    (Taken, ""),
    (Taken, ", containerFile: [{content: FROM configs}]"),
    (Refused("spec.containerFile[0].content"), ", containerFile: [{containerfileArch: NoArch}]"),
    (Refused("spec.containerFile"), ", containerFile: FROM configs"),
    (Refused("spec.baseImagePullSecret.name"), ", baseImagePullSecret: {}"),
    (Unknown("spec.containerfile"), ", containerfile: []"),
    (Unknown("spec.containerFile[0].contents"), ", containerFile: [{content: a, contents: b}]"),
];

/// Pre-built images of a `MachineOSConfig`.
const PRE_BUILT: &[Row] = &[
    (Taken, "'r.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
    (Taken, "'r.test/os:4.17@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"),
];

const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";

const POLICIES: &[Row] = &[
    (Taken, "{}"),
    (Taken, "{logLevel: Normal, managedBootImages: {}}"),
    (Taken, "{nodeDisruptionPolicy: {files: [{path: /etc/a, actions: [{type: None}]}]}}"),
    (Refused("spec.nodeDisruptionPolicy.files[0].path"), "{nodeDisruptionPolicy: {files: [{actions: []}]}}"),
    (Unknown("spec.nodeDisruptionPolicy.file"), "{nodeDisruptionPolicy: {file: []}}"),
    (Unknown("spec.nodeDisruptionPolicys"), "{nodeDisruptionPolicys: {}}"),
];

/// The fields that the operator has and that are not read here pass.
const CONTROLLER_CONFIGS: &[Row] = &[
    (Taken, "{}"),
    (
        Taken,
        "{osImageURL: 'r.test/os@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', images: {a: b}, \
          releaseImage: r.test/release:1, additionalTrustBundle: null}",
    ),
    (
        Taken,
        "{infra: {anything: {}}, proxy: {httpProxy: 'http://p.test', noProxy: a}, kubeAPIServerServingCAData: YQ==}",
    ),
    (
        Taken,
        "{imageRegistryBundleUserData: [{file: r.test..5000, data: YQ==}], internalRegistryPullSecret: null}",
    ),
    (
        Taken,
        "{clusterDNSIP: 10.0.0.10, cloudProviderConfig: '', platform: None, etcdDiscoveryDomain: a.test, rootCAData: YQ==, \
          pullSecret: {name: a, namespace: b}, bgpVIPPeersJSON: '{}', dns: {spec: {baseDomain: a.test}}, ipFamilies: IPv4, \
          networkType: OVNKubernetes, network: {mtuMigration: null}}",
    ),
    (Unknown("spec.osImageUrl"), "{osImageUrl: x}"),
    (Unknown("spec.networkTypes"), "{networkTypes: x}"),
    (Unknown("spec.baseOSContainerImages"), "{baseOSContainerImages: x}"),
    (Unknown("spec.proxy.httpsProxies"), "{proxy: {httpsProxies: 'http://p.test'}}"),
    (
        Unknown("spec.imageRegistryBundleData[0].name"),
        "{imageRegistryBundleData: [{name: r.test, file: r.test, data: YQ==}]}",
    ),
    (Refused("spec"), "[]"),
    (Refused("spec.images.a"), "{images: {a: 5}}"),
    (Refused("spec.osImageURL"), "{osImageURL: [x]}"),
    (Refused("spec.imageRegistryBundleData"), "{imageRegistryBundleData: {file: r.test}}"),
];

/// Read by nodes alone: in a file the kind is named as one that is not read there.
pub const PINNED_SETS: &[(Option<&str>, &str)] = &[
    (None, "{}"),
    (None, "{pinnedImages: []}"),
    (None, "{pinnedImages: null}"),
    (
        None,
        "{pinnedImages: [{name: 'r.test/a@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}]}",
    ),
    (
        None,
        "{pinnedImages: [{name: 'r.test/a:1.2@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}]}",
    ),
    (Some("spec"), "[]"),
    (Some("spec.pinnedImages"), "{pinnedImages: {name: a}}"),
    (Some("spec.pinnedImages[0]"), "{pinnedImages: [r.test/a]}"),
    (Some("spec.pinnedImages[0].name"), "{pinnedImages: [{image: r.test/a}]}"),
    (Some("spec.pinnedImages[1].name"), "{pinnedImages: [{name: a}, {name: 5}]}"),
];

/// Heads of a MachineConfig.
const HEADS: &[Row] = &[
    (
        Taken,
        "{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {name: a}, spec: {}}",
    ),
    (Taken, "{kind: MachineConfig, metadata: {name: a, labels: {a: b}, uid: a, generation: 1}, spec: {}}"),
    (
        Refused("apiVersion"),
        "{apiVersion: machineconfiguration.openshift.io/v1beta1, kind: MachineConfig, metadata: {name: a}, spec: {}}",
    ),
    (Refused("apiVersion"), "{apiVersion: v1, kind: MachineConfig, metadata: {name: a}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: ../../etc/x}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: A_b}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: ''}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {name: 5}, spec: {}}"),
    (Refused("metadata.name"), "{kind: MachineConfig, metadata: {labels: {a: b}}, spec: {}}"),
    (Refused("spec"), "{kind: MachineConfig, metadata: {name: a}}"),
    (Unknown("sepc"), "{kind: MachineConfig, metadata: {name: a}, spec: {}, sepc: {}}"),
    (Unknown("metadata.lables"), "{kind: MachineConfig, metadata: {name: a, lables: {}}, spec: {}}"),
];

/// Document of a kind and the answer to it.
#[derive(Debug, Clone)]
pub struct Document {
    pub kind: &'static str,
    pub expect: Expect,
    pub text: String,
}

impl Document {
    /// Returns true if it has what only an installation sets: no node gets to it, or leaves it.
    pub fn is_of_installation(&self) -> bool {
        let parts = ["disks: [{", "raid: [{", "filesystems: [{", "luks: [{", "kernelArguments: {should"];
        matches!(self.expect, Taken) && parts.iter().any(|part| self.text.contains(part))
    }
}

const GROUP: &str = "machineconfiguration.openshift.io/v1";

/// All documents. Those with a head of their own have the name that is written there.
pub fn documents() -> Vec<Document> {
    let of = |group: &'static str, kind: &'static str, name: &'static str| {
        move |spec: &str| {
            format!("{{apiVersion: {group}, kind: {kind}, metadata: {{name: {name}}}, spec: {spec}}}")
        }
    };
    // Of the pool that the tests have.
    let config = of(GROUP, "MachineConfig", "50-a, labels: {machineconfiguration.openshift.io/role: worker}");
    let ignition = |part: &str| config(&format!("{{config: {{ignition: {{version: 3.4.0}}, {part}}}}}"));
    let newer = |part: &str| config(&format!("{{config: {part}}}"));
    let os_image = |image: &str, part: &str| {
        format!(
            "{{apiVersion: {GROUP}, kind: MachineOSConfig, metadata: {{name: worker, annotations: {{{PRE_BUILT_IMAGE}: {image}}}}}, \
             spec: {{{OS_CONFIG}{part}}}}}"
        )
    };
    let os_config = |part: &str| os_image(PRE_BUILT[0].1, part);
    let pre_built = |image: &str| os_image(image, "");
    [
        all("MachineConfig", SPECS, config),
        all("MachineConfig", IGNITION, ignition),
        all("MachineConfig", NEWER, newer),
        all("MachineConfig", HEADS, str::to_owned),
        all("MachineConfigPool", POOLS, of(GROUP, "MachineConfigPool", "a")),
        all("RolloutPolicy", ROLLOUTS, of("machine-config-agent.io/v1alpha1", "RolloutPolicy", "a")),
        all("MachineOSConfig", OS_CONFIGS, os_config),
        all("MachineOSConfig", PRE_BUILT, pre_built),
        all(
            "MachineConfiguration",
            POLICIES,
            of("operator.openshift.io/v1", "MachineConfiguration", "cluster"),
        ),
        all(
            "ControllerConfig",
            CONTROLLER_CONFIGS,
            of(GROUP, "ControllerConfig", "machine-config-controller"),
        ),
    ]
    .concat()
}

fn all(kind: &'static str, rows: &[Row], document: impl Fn(&str) -> String) -> Vec<Document> {
    let of_row = |(expect, part): &Row| Document { kind, expect: *expect, text: document(part) };
    rows.iter().map(of_row).collect()
}
