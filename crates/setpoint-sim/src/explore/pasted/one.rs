    #[test]
    fn one_found() {
        use setpoint_sim::{Fault, replay};
        replay(scenario, [
            Fault::Order(7),
        ]);
    }
