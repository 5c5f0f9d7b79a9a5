// With a file of assembly in the package, functions may stand in rings.go without a body.
