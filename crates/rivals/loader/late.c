// A library that is loaded later, with a thread-local in the static block: see blocks.c.
__thread int ie_value __attribute__((tls_model("initial-exec"))) = 42;
int ie_get(void) { return ie_value; }
