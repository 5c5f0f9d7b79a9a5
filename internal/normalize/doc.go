// Package normalize gives values of requests one spelling each, where several reach the
// same site, the same path or the same client. A key that is counted must not depend on
// the spelling: each one would have a quota of its own.
//
// It folds as Caddy's matchers do, and no more. A value that has the spelling already is
// returned as it is, without an allocation.
package normalize
