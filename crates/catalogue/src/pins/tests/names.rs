//! Tests of which names are confusable.

use crate::pins::Names;

fn can_claim_both(first: &str, second: &str) -> bool {
    let mut names = Names::default();
    names.claim("first", "", first).unwrap();
    names.claim("second", "", second).is_ok()
}

#[test]
fn names_that_look_alike_are_refused_to_the_second() {
    for (first, second) in [
        ("read_file", "read_file"),
        ("read_file", "Read_File"),
        ("read_file", "READ-FILE"),
        ("read_file", "read.file"),
        ("read_file", "readfile"),
        ("read_file", "read_fi1e"),
        ("read_file", "read_fiIe"),
        ("open_order", "0pen_order"),
        ("login", "Iogin"),
        ("turn_on", "tum_on"),
    ] {
        assert!(!can_claim_both(first, second), "{first} and {second}");
        assert!(!can_claim_both(second, first), "{second} and {first}");
    }
    for (first, second) in [
        ("read_file", "read_files"),
        ("list_a", "list_b"),
        ("get", "set"),
        ("pin", "pan"),
    ] {
        assert!(can_claim_both(first, second), "{first} and {second}");
    }
}

#[test]
fn the_owner_may_claim_again_and_configured_tools_come_first() {
    let mut names = Names::of_configured(["search", "find-it"]);
    names.claim("a", "a__", "search").unwrap();
    names.claim("a", "a__", "search").unwrap();
    let refused = names.claim("b", "", "findit").unwrap_err().to_string();
    assert_eq!(
        refused,
        "its name `findit` can be confused with `find-it` of the configured tools"
    );
    let refused = names.claim("b", "a_", "_search").unwrap_err().to_string();
    assert_eq!(
        refused,
        "its name `a__search` can be confused with `a__search` of source `a`"
    );
}

#[test]
fn a_name_is_what_every_client_takes() {
    let mut names = Names::default();
    for good in ["a", "a.b-c_D9", &"x".repeat(59)] {
        names.claim("s", "pre__", good).unwrap();
    }
    for bad in [
        "",
        "a b",
        "naïve",
        "x\u{200b}",
        "a/b",
        "раypal",
        &"x".repeat(60),
    ] {
        let error = names.claim("s", "pre__", bad).unwrap_err().to_string();
        assert!(error.contains("is not 1 to 64 characters"), "{error}");
        assert!(error.is_ascii() || !error.contains('\u{200b}'), "{error:?}");
    }
    names.claim("s", "", "").unwrap_err();
}
