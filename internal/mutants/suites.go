package main

import (
	"path"
	"strings"
)

// slow tests of the conformance suite are left out: they take minutes, and are about the
// precision of slices.
const slow = "^TestConformance/(AdaptiveSwitches|LayersAreFineSlices|ManyLayers|ManySlices|Millisecond.*|StrictNeverOver|WeightedWorstCase)$"

// variants are the algorithms as the tests name them, by the file of each.
var variants = map[string]string{
	"gcra":   "gcra|packed_gcra",
	"layers": "layers.*",
	"log":    "log",
	"slices": ".*slice.*",
	"stream": "stream.*",
	"zset":   "zset",
}

// keys are the tests of what is in Redis, which decisions do not show: when keys expire, what is
// tidied up, what is refused.
const keys = "^Test(BatchesAgree|DenialWritesNothing|ExpiryAfterStep|ForeignContent|Format|GiveBackWithoutMemory|KeptBuckets|" +
	"LargeKeysShrink|Layers.*|Log.*|Packed.*|Permissions|Slices.*|Stream.*|Together.*|TTL.*|Work.*|WrongType.*|Zset.*)$"

// suites are the arguments of what runs against a change of a file, one after the other: the
// first kills most mutants, and the last leaves the survivors.
func suites(file string) [][]string {
	name := strings.TrimSuffix(path.Base(file), ".lua")
	if name == "instances" {
		return [][]string{{"-test.run", "^Test(Instances|Attend).*$"}}
	}
	own, walks := variants[name], "30"
	if own == "" {
		own, walks = ".*", "10"
	}
	return [][]string{
		{"-test.run", "^TestFormat$|^TestTTL$"},
		{"-test.run", "^TestAgreesWithMemory$/^(" + own + "|few_slices|mixed)$", "-walks", walks},
		{"-test.run", "^TestConformance$/./^(packed|" + own + ")$", "-test.skip", slow},
		{"-test.run", keys},
	}
}
