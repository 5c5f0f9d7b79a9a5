package bans

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

const start = int64(1_800_000_000_000)

// TestStrikes plays strikes at times after start. A want of 0 is no ban, and -1 is a strike that does not count.
func TestStrikes(t *testing.T) {
	type step struct{ at, want int64 }
	base := Rule{Length: 10_000, After: 1, In: 60_000, Factor: 2000, Max: 35_000, Halve: 100_000}
	with := func(change func(*Rule)) Rule {
		r := base
		change(&r)
		return r
	}
	for name, test := range map[string]struct {
		rule  Rule
		steps []step
	}{
		"each ban is longer, up to the maximum": {base, []step{{0, 10_000}, {10_000, 20_000}, {30_000, 35_000}, {65_000, 35_000}}},
		"a strike in a ban does not count":      {base, []step{{0, 10_000}, {5_000, -1}, {9_999, -1}, {10_000, 20_000}}},
		"the level falls by one each halve":     {base, []step{{0, 10_000}, {10_000, 20_000}, {129_999, 35_000}, {264_999, 20_000}}},
		"level is gone":                         {base, []step{{0, 10_000}, {10_000, 20_000}, {30_000 + 200_000, 10_000}}},
		"a strike without a ban delays the fall": {with(func(r *Rule) { r.After, r.In = 2, 200_000 }), []step{
			{0, 0}, {1_000, 10_000}, {100_000, 0}, {199_999, 20_000}}},
		"without a factor all are as long": {with(func(r *Rule) { r.Factor = 1000 }), []step{{0, 10_000}, {10_000, 10_000}, {20_000, 10_000}}},
		"the third in a minute": {with(func(r *Rule) { r.After = 3 }), []step{
			{0, 0}, {30_000, 0}, {60_000, 0}, {61_000, 10_000}, {71_000, 0}, {72_000, 0}, {73_000, 20_000}}},
		"the third just in time":        {with(func(r *Rule) { r.After = 3 }), []step{{0, 0}, {30_000, 0}, {59_999, 10_000}}},
		"one strike counts a second":    {with(func(r *Rule) { r.After = 2 }), []step{{0, 0}, {1, -1}, {999, -1}, {1_000, 10_000}}},
		"the clock steps back an hour":  {base, []step{{0, 10_000}, {-3_600_000, 20_000}, {-3_580_001, -1}, {-3_580_000, 35_000}}},
		"the clock steps back a little": {base, []step{{0, 10_000}, {-1, -1}, {-10_000, -1}, {-10_001, 20_000}}},
		"the clock steps back between strikes": {with(func(r *Rule) { r.After = 2 }), []step{
			{0, 0}, {-3_600_000, 0}, {-3_599_000, 10_000}}},
		"the clock steps ahead an hour, and back": {base, []step{{0, 10_000}, {3_600_000, 10_000}, {20_000, 20_000}}},
		"a factor of a billion": {with(func(r *Rule) { r.Factor, r.Max = 1_000_000_000_000, Longest }), []step{
			{0, 10_000}, {10_000, Longest}, {10_000 + Longest, Longest}}},
	} {
		var r Record
		for i, s := range test.steps {
			now, before := start+s.at, r.String()
			got := int64(0)
			if r.strike(now, 0, &test.rule) {
				got = r.Until - now
			} else if r.String() == before {
				got = -1
			}
			if got != s.want {
				t.Errorf("%s: step %d: %d, want %d", name, i, got, s.want)
			}
			if r.Forget < r.Until+test.rule.In {
				t.Errorf("%s: step %d: %+v is forgotten before strikes are", name, i, r)
			}
		}
	}
}

// The level does not grow where bans do not, so that it falls from there.
func TestTop(t *testing.T) {
	for _, test := range []struct{ length, factor, most, want int64 }{
		{10_000, 2000, 35_000, 2}, {10_000, 2000, 40_000, 2}, {10_000, 2000, 40_001, 3}, {10_000, 2000, 10_000, 0}, {10_000, 1000, 35_000, 0},
		{1_000, 1_000_000_000_000, Longest, 1}, {1_000, 1100, Longest, 182},
	} {
		rule := Rule{Length: test.length, After: 1, In: 1_000, Factor: test.factor, Max: test.most, Halve: Longest, Spread: 1000}
		if option, err := rule.Check(); err != nil {
			t.Fatal(option, err)
		}
		r := Record{Level: math.MaxInt32}
		for now, n := start, 0; n < 1_000; now, n = r.Until, n+1 {
			if !r.strike(now, 999, &rule) || r.Until-now > 2*test.most || r.Forget > 1<<53 {
				t.Fatalf("%+v: %+v", test, r)
			}
			if r.Level != test.want {
				t.Errorf("%+v: level %d", test, r.Level)
			}
		}
	}
}

// A ban lasts longer by at most Spread, and every length in between occurs.
func TestSpread(t *testing.T) {
	rule := Rule{Length: 10_000, After: 1, In: 1_000, Factor: 2000, Max: 35_000, Halve: Longest, Spread: 100}
	for _, test := range []struct{ level, draw, want int64 }{
		{0, 0, 10_000}, {0, 1, 10_001}, {0, 500, 10_500}, {0, 999, 10_999}, {1, 999, 21_998}, {2, 0, 35_000}, {2, 999, 38_496}, {1_000_000, 0, 35_000},
	} {
		r := Record{Level: test.level, Last: start - 1_000}
		if r.strike(start, test.draw, &rule); r.Until-start != test.want {
			t.Errorf("level %d, draw %d: %d, want %d", test.level, test.draw, r.Until-start, test.want)
		}
	}
}

// A lift ends a ban, and makes the next one shorter. For as long as Pardon, denials are no strikes, and the record remembers so.
func TestLift(t *testing.T) {
	rule := Rule{Length: 10_000, After: 1, In: 1_000, Factor: 2000, Max: 80_000, Halve: 1_000, Pardon: 60_000}
	var r Record
	r.strike(start, 0, &rule)
	r.strike(start+10_000, 0, &rule)
	if r.Level != 2 || r.Left(start+15_000) != 15_000 {
		t.Fatalf("%+v", r)
	}
	at := start + 29_999
	if !r.lift(at) || r.lift(at) || r.Left(at) != 0 || r.Level != 1 {
		t.Errorf("%+v: not lifted, or twice", r)
	}
	if r.Forget < at+rule.Pardon {
		t.Errorf("%+v is forgotten %d before denials are strikes", r, at+rule.Pardon-r.Forget)
	}
	rule.Halve = 1_000_000
	for _, now := range []int64{at, at + 59_999} {
		if r.strike(now, 0, &rule) {
			t.Errorf("banned %d after the lift", now-at)
		}
	}
	if !r.strike(at+60_000, 0, &rule) || r.Until-r.Began != 20_000 {
		t.Errorf("%+v: want a ban of 20 s again", r)
	}
	if r = (Record{Until: start + 1}); !r.lift(start) || r.lift(start+1) || r.Level != 0 {
		t.Errorf("%+v: want level 0", r)
	}
}

// What a store has lost comes back by a merge: bans that are in force, no ban that was lifted since, and the higher level.
func TestMerge(t *testing.T) {
	ban := Record{Until: 2_000, Began: 1_000, Level: 3, Last: 1_000, Forget: 9_000, About: "a"}
	lifted := Record{Until: 1_500, Began: 1_000, Level: 2, Last: 1_000, Lifted: 1_500, Forget: 9_000, About: "a"}
	anew := Record{Until: 4_000, Began: 1_500, Level: 3, Last: 1_500, Lifted: 1_500, Forget: 9_000, About: "b"}
	longer := Record{Until: 3_000, Began: 1_000, Level: 1, Forget: 8_000, About: "c"}
	for name, test := range map[string]struct {
		r, o  Record
		until int64
		done  bool
	}{
		"into nothing":         {Record{}, ban, 2_000, true},
		"the same":             {ban, ban, 2_000, false},
		"a longer one":         {ban, longer, 3_000, true},
		"a shorter one":        {longer, ban, 3_000, false},
		"a lift":               {ban, lifted, 1_500, true},
		"of what was lifted":   {lifted, ban, 1_500, false},
		"one after the lift":   {lifted, anew, 4_000, true},
		"the lift before it":   {anew, lifted, 4_000, false},
		"after a lift, at all": {Record{}, anew, 4_000, true},
		"a ban before a later": {ban, anew, 4_000, true},
	} {
		r := test.r
		if done := r.merge(&test.o); done != test.done || r.Until != test.until {
			t.Errorf("%s: %v, %+v, want %v and the end at %d", name, done, r, test.done, test.until)
		}
		if r.Level != max(test.r.Level, test.o.Level) || r.Forget != max(test.r.Forget, test.o.Forget) || r.Last != max(test.r.Last, test.o.Last) {
			t.Errorf("%s: %+v of %+v and %+v", name, r, test.r, test.o)
		}
		if again := r; again.merge(&test.o) || again.String() != r.String() {
			t.Errorf("%s: %+v, and after another merge %+v", name, r, again)
		}
	}
	r, o := Record{Strikes: []int64{1_000, 5_000}}, Record{Strikes: []int64{1_999, 3_000, 5_000, 6_000}}
	if r.merge(&o); fmt.Sprint(r.Strikes) != "[1000 3000 5000 6000]" {
		t.Errorf("strikes %v", r.Strikes)
	}
	for i := range int64(MostStrikes) {
		r.Strikes, o.Strikes = append(r.Strikes, 10_000+2_000*i), append(o.Strikes, 11_000+2_000*i)
	}
	if r.merge(&o); len(r.Strikes) != MostStrikes || r.Strikes[MostStrikes-1] != o.Strikes[len(o.Strikes)-1] {
		t.Errorf("%d strikes up to %d", len(r.Strikes), r.Strikes[len(r.Strikes)-1])
	}
}

// However the clock of a store steps, no process takes a ban for longer than it was made.
func TestLeft(t *testing.T) {
	r := Record{Began: start, Until: start + 10_000}
	for _, test := range []struct{ at, want int64 }{
		{-3_600_000, 10_000}, {-1, 10_000}, {0, 10_000}, {1, 9_999}, {9_999, 1}, {10_000, 0}, {3_600_000, 0},
	} {
		if got := r.Left(start + test.at); got != test.want {
			t.Errorf("at %d: %d, want %d", test.at, got, test.want)
		}
	}
	if r.lift(start - 5_000); r.Left(start-6_000) != 0 {
		t.Errorf("%+v: banned after the lift", r)
	}
}

// TestCheck holds that the error of a rule names the option.
func TestCheck(t *testing.T) {
	good := Rule{Length: 10_000, After: 1, In: 60_000, Factor: 2000, Max: 35_000, Halve: 100_000, Spread: 100, Pardon: 1}
	if option, err := good.Check(); option != "" || err != nil {
		t.Errorf("%s: %v", option, err)
	}
	for i, test := range []struct {
		option string
		change func(*Rule)
	}{
		{"for", func(r *Rule) { r.Length = 999 }},
		{"for", func(r *Rule) { r.Length = Longest + 1 }},
		{"in", func(r *Rule) { r.In = 999 }},
		{"after", func(r *Rule) { r.After = 0 }},
		{"after", func(r *Rule) { r.After = MostStrikes + 1 }},
		{"max", func(r *Rule) { r.Max = r.Length - 1 }},
		{"max", func(r *Rule) { r.Max = Longest + 1 }},
		{"halve", func(r *Rule) { r.Halve = 0 }},
		{"factor", func(r *Rule) { r.Factor = 999 }},
		{"factor", func(r *Rule) { r.Factor = 1_099 }},
		{"factor", func(r *Rule) { r.Factor = 1_000_000_000_001 }},
		{"spread", func(r *Rule) { r.Spread = -1 }},
		{"spread", func(r *Rule) { r.Spread = 1_001 }},
	} {
		rule := good
		test.change(&rule)
		if option, err := rule.Check(); option != test.option || err == nil {
			t.Errorf("%d: %q, %v, want an error of %s", i, option, err, test.option)
		}
	}
	short := good
	short.Max = short.Length - 1
	if _, err := short.Check(); !strings.Contains(err.Error(), "10s") {
		t.Errorf("%v", err)
	}
}

// FuzzParse reads any text. What is a record is written as one that reads alike.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "|", "1 2 3 4 5 6|", "1 2 3 4 5 6 x|", "1 2 3 4 5 6 -7|", "1 2 3 4 5 6 7", "1 2 3 4 5 6 +7|", "1  2 3 4 5 6 7|", "1 2 3 4 5 6 7 |",
		"1 2 3 4 5 6 9007199254740992|", "1 2 3 4 5 6\t7|", "1 2 3 4 5 6 7" + strings.Repeat(" 8", MostStrikes+1) + "|",
		"0 0 0 0 0 0 9007199254740991|", `1 2 3 4 5 6 7 8 9|{"by":"a|b"}`, "1 2 3 4 5 6 7" + strings.Repeat(" 8", MostStrikes) + "|\n\x00",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Parse(text)
		if err != nil {
			if r.String() != (&Record{}).String() {
				t.Errorf("%q: %v, and %+v", text, err, r)
			}
			return
		}
		again, err := Parse(r.String())
		if err != nil || fmt.Sprintf("%+v", again) != fmt.Sprintf("%+v", r) {
			t.Errorf("%q: %+v, and written as %q, %v: %+v", text, r, r.String(), err, again)
		}
		list, about, _ := strings.Cut(text, "|")
		if about != r.About || strings.Count(list, " ") != numbers+len(r.Strikes)-1 {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

// Texts that are no records.
func TestParse(t *testing.T) {
	for _, text := range []string{
		"", "|", "1 2 3 4 5 6|", "1 2 3 4 5 6 x|", "1 2 3 4 5 6 -7|", "1 2 3 4 5 6 7", "1 2 3 4 5 6 +7|", "1  2 3 4 5 6 7|", "1 2 3 4 5 6 7 |",
		"1 2 3 4 5 6 9007199254740992|", "1 2 3 4 5 6\t7|", "1 2 3 4 5 6 7" + strings.Repeat(" 8", MostStrikes+1) + "|",
	} {
		if r, err := Parse(text); err != ErrRecord { //nolint:errorlint // as it is
			t.Errorf("%q is %+v, %v", text, r, err)
		}
	}
	r := Record{1, 2, 3, 4, 5, 6, 7, []int64{8, 9}, `{"by":"a|b"}`}
	got, err := Parse(r.String())
	if err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
		t.Errorf("%+v, %v, want %+v", got, err, r)
	}
}
