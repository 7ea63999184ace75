//! Informers against a scripted server, on paused time: each line of the contract as a test, for each form of a cache. One
//! program has all of them: an informer is compiled once.
#![allow(missing_docs)]
// The same tests, on another form.
#![allow(clippy::duplicate_mod)]

/// The tests on one form of a cache.
macro_rules! form {
    ($(#[$doc:meta])* $form:ident, $change:expr, $($module:ident)*) => {
        $(#[$doc])*
        #[path = "."]
        mod $form {
            mod bad_input;
            mod handlers;
            mod history;
            mod informer;
            mod list;
            mod panics;
            mod property;
            mod recovery;
            mod script;
            mod watch;
            $(mod $module;)*

            use k8s_openapi::api::core::v1::ConfigMap;
            use setpoint::InformerBuilder;

            fn form(builder: InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> {
                let change: fn(InformerBuilder<ConfigMap>) -> InformerBuilder<ConfigMap> = $change;
                change(builder)
            }
        }
    };
}

form!(
    /// The usual one.
    lazy, |builder| builder, factory in_process
);
form!(
    /// Objects are decoded when they come.
    eager, InformerBuilder::eager,
);
form!(
    /// Objects are compressed.
    compact, InformerBuilder::compact,
);
form!(
    /// Informers ask for protobuf. The scripts answer in what they are asked for; where a test says what the bytes are
    /// (`bad_input`), that is JSON, as from a server that knows nothing else.
    protobuf_form, InformerBuilder::protobuf, in_process protobuf
);
