//! The names of controllers. Not beside the code: whatever mentions the table of controllers compiles all of them.

use setpoint_cluster::Controllers;

#[test]
fn a_list_names_controllers_or_takes_some_away() {
    let parse = |list: &str| Controllers::parse(list).unwrap();
    for nothing in ["", " ", " , "] {
        assert_eq!(parse(nothing), Controllers::none(), "{nothing:?}");
    }
    assert_eq!(parse("*"), Controllers::all());
    assert_eq!(parse("job,scheduler").to_string(), "job-controller,scheduler");
    let most = parse("-job");
    assert!(!most.contains("job-controller") && most.contains("scheduler"));
}
