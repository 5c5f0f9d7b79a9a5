package main

import (
	"path"
	"strings"
)

// quick tests of the conformance suite take a second or so.
const quick = "^TestConformance$/^(Batch|ClockStepsBack.*|GCRAClockStepsBack|GCRASettle|GCRATables|Reset|SameMillisecond|Settle|SettleWhereNothingIs|Tables|ZonesAllOrNothing)$"

// variants are the algorithms as the tests name them, by what the names of the files of each
// begin with.
var variants = map[string]string{
	"gcra":   "gcra|packed_gcra",
	"layers": "layers.*",
	"log":    "log",
	"slices": ".*slice.*",
	"stream": "stream.*",
	"zset":   "zset",
}

// keys are the tests of what is in Redis, which decisions do not show: when keys expire, what is
// tidied up, what is refused. Those that measure time are left out.
const keys = "^Test(BatchesAgree|DenialWritesNothing|ExpiryAfterStep|ForeignContent|Format|FullestBucket|GiveBackWithoutMemory|KeptBuckets|" +
	"LargeKeysShrink|Layers.*|Log.*|Packed.*|Permissions|Slices.*|Stream.*|Together.*|TTL.*|WrongType.*|Zset.*)$"

// suites are the arguments of what runs against a change of a file, one after the other: the
// first kills most mutants, and the last leaves the survivors.
func suites(file string) [][]string {
	name := strings.TrimSuffix(path.Base(file), ".lua")
	if name == "instances" {
		return [][]string{{"-test.run", "^TestInstances.*$"}}
	}
	if name == "overrides" {
		return [][]string{{"-test.run", "^TestOverrides.*$"}}
	}
	if name == "enforce" {
		return [][]string{{"-test.run", "^TestOrders.*$"}}
	}
	if name == "bans" {
		return [][]string{{"-test.run", "^TestAgreeOnBans$"}, {"-test.run", "^TestBans.*$"}}
	}
	if name == "concurrent" {
		return [][]string{{"-test.run", "^TestConformance$/^Held.*$"}, {"-test.run", "^Test(LinearizableHeld|Totals.*)$"}}
	}
	own := ".*"
	for algorithm, tests := range variants {
		if strings.HasPrefix(name, algorithm) {
			own = tests
		}
	}
	agree := "^TestAgreesWithMemory$/^(" + own + ")$"
	return [][]string{
		{"-test.run", agree, "-walks", "2"},
		{"-test.run", quick + "/^(packed.*|" + own + ")$"},
		{"-test.run", agree, "-walks", "12"},
		{"-test.run", keys},
	}
}
