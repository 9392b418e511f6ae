//! docs/use/hints.md agrees with the table of methods. With PENSTOCK_UPDATE_DOCS=1 the test writes it; without it, the
//! page must agree.
use penstock_mpiio::{Method, hint_keys, manual};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/use/hints.md");

#[test]
fn the_page_has_the_table_of_methods_and_every_hint() {
    let mut page = std::fs::read_to_string(PAGE).unwrap();
    let update = std::env::var_os("PENSTOCK_UPDATE_DOCS").is_some();
    for (name, table) in [
        ("methods", manual::methods()),
        ("hints of methods", manual::hints()),
    ] {
        let (begin, end) = (
            format!("<!-- {name} -->\n"),
            format!("<!-- end of {name} -->"),
        );
        let (head, rest) = page.split_once(&begin).unwrap();
        let (old, tail) = rest.split_once(&end).unwrap();
        if !update {
            assert_eq!(
                old, table,
                "the table is stale: run with PENSTOCK_UPDATE_DOCS=1"
            );
        }
        page = format!("{head}{begin}{table}{end}{tail}");
    }
    if update {
        std::fs::write(PAGE, &page).unwrap();
    }
    for key in hint_keys() {
        assert!(page.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn the_tables_have_every_method() {
    for method in Method::ALL {
        let name = format!("| `{}` |", method.name());
        assert!(manual::methods().contains(&name), "{name}");
    }
    assert_eq!(manual::methods().lines().count(), 2 + Method::ALL.len());
}
