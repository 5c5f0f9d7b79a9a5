package slidingwindow

import (
	"encoding/json"
	"testing"
	"time"
)

func TestValueJSON(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Value
		out  string
	}{
		{`5`, "5", `5`},
		{`0`, "0", `0`},
		{`-5`, "-5", `-5`},
		{`"5"`, "5", `5`},
		{`"05"`, "05", `"05"`},
		{`"+5"`, "+5", `"+5"`},
		{`1.5`, "1.5", `"1.5"`},
		{`1e3`, "1e3", `"1e3"`},
		{`9007199254740992`, "9007199254740992", `9007199254740992`},
		{`-9007199254740993`, "-9007199254740993", `"-9007199254740993"`},
		{`9007199254740993`, "9007199254740993", `"9007199254740993"`},
		{`9223372036854775807`, "9223372036854775807", `"9223372036854775807"`},
		{`9223372036854775808`, "9223372036854775808", `"9223372036854775808"`},
		{`"1m"`, "1m", `"1m"`},
		{`60000000000`, "60000000000", `60000000000`},
		{`"{http.vars.max}"`, "{http.vars.max}", `"{http.vars.max}"`},
		{`""`, "", `""`},
		{`null`, "", `""`},
	} {
		var got Value
		if err := json.Unmarshal([]byte(c.in), &got); err != nil || got != c.want {
			t.Errorf("Unmarshal(%s): got %q, %v, want %q", c.in, got, err, c.want)
		}
		if out, err := json.Marshal(got); err != nil || string(out) != c.out {
			t.Errorf("Marshal(%q): got %s, %v, want %s", got, out, err, c.out)
		}
	}
	for _, in := range []string{`true`, `[]`, `{}`, `[5]`} {
		var v Value
		if err := json.Unmarshal([]byte(in), &v); err == nil {
			t.Errorf("Unmarshal(%s): got %q, want an error", in, v)
		}
	}
}

func TestValueDuration(t *testing.T) {
	for _, c := range []struct {
		in   Value
		want time.Duration
		ok   bool
	}{
		{"1m", time.Minute, true},
		{"1d12h", 36 * time.Hour, true},
		{"60000000000", time.Minute, true},
		{"-1s", -time.Second, true},
		{"", 0, false},
		{"1 m", 0, false},
		{"NaN", 0, false},
	} {
		got, err := c.in.duration()
		if got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: got %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}
