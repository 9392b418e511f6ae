//! Keys and capabilities: protected from others, and valid only for what they state.
use penstock_layout::{FileId, Layout, ServerId};
use penstock_wire::message::{Capability, ErrorKind, SEAL_LEN};
use penstock_wire::{Key, Rights, SealKey, SealKeys};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn keys_are_kept_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("client.key");
    let mut key = Key::generate().unwrap();
    key.save(&path).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(Key::load(&path).unwrap().source(), path);
    // Never overwritten, never shown.
    assert!(
        key.save(&path)
            .unwrap_err()
            .to_string()
            .contains("cannot create")
    );
    let secret = std::fs::read_to_string(&path).unwrap();
    assert!(!format!("{key:?}").contains(&secret[..8]));
    for mode in [0o640, 0o604, 0o660, 0o666] {
        set_mode(&path, mode);
        let e = Key::load(&path).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Permission);
        assert!(e.to_string().contains("chmod 600"), "{e}");
        assert!(e.to_string().contains("client.key"), "{e}");
    }
    set_mode(&path, 0o600);
    for text in [
        "",
        "abc",
        &"g".repeat(64),
        &"0".repeat(66),
        &"0".repeat(100_000),
    ] {
        std::fs::write(&path, text).unwrap();
        assert!(
            Key::load(&path)
                .unwrap_err()
                .to_string()
                .contains("not a key")
        );
    }
    assert!(
        Key::load(&dir.path().join("none"))
            .unwrap_err()
            .to_string()
            .contains("cannot read")
    );
    assert!(Key::load(dir.path()).is_err());
}

#[test]
fn capabilities_hold_for_their_fields_and_their_time() {
    let [key, other] = [5, 6].map(|byte| SealKey::of(&Key::from_bytes([byte; 32])));
    let keys: SealKeys = [(ServerId(0), other.clone()), (ServerId(2), key.clone())].into();
    let at = ServerId(2);
    let layout = Layout::new(64, vec![ServerId(0), at, ServerId(5)]).unwrap();
    let rights = Rights {
        read: true,
        ..Rights::default()
    };
    let good = Capability::grant(&keys, 7, FileId(1), rights, 400..1000, Some(7), layout).unwrap();
    assert!(good.read && !good.write && !good.remove);
    good.verify(at, &key, 999).unwrap();
    good.verify(ServerId(0), &other, 999).unwrap();
    assert_eq!(
        good.verify(at, &key, 1000).unwrap_err().kind,
        ErrorKind::ExpiredCapability
    );
    assert_eq!(
        good.verify_time(1000).unwrap_err().kind,
        ErrorKind::ExpiredCapability
    );
    // Each server has a seal of its own; a server outside the deployment has none.
    for (server, key) in [(at, &other), (ServerId(0), &key), (ServerId(5), &key)] {
        let kind = good.verify(server, key, 0).unwrap_err().kind;
        assert_eq!(kind, ErrorKind::BadCapability);
    }
    let kind = good.verify(ServerId(1), &key, 0).unwrap_err().kind;
    assert_eq!(kind, ErrorKind::InvalidArgument);
    for bit in 0..8 * SEAL_LEN {
        let mut bad = good.clone();
        bad.seals[1].0[bit / 8] ^= 1 << (bit % 8);
        let kind = bad.verify(at, &key, 0).unwrap_err().kind;
        assert_eq!(kind, ErrorKind::BadCapability);
    }
    assert_eq!(good.lifetime(), Duration::from_millis(600));
    let changes: [fn(&mut Capability); 6] = [
        |c| c.seals.truncate(1),
        |c| c.seals.clear(),
        |c| c.subject += 1,
        |c| c.write = true,
        |c| c.issued_ms += 1,
        |c| c.expires_ms += 1,
    ];
    for change in changes {
        let mut changed = good.clone();
        change(&mut changed);
        let kind = changed.verify_seal(at, &key).unwrap_err().kind;
        assert_eq!(kind, ErrorKind::BadCapability);
    }
}
