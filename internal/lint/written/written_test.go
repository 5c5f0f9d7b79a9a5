package written

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

const example = `{
	servers {
		trusted_proxies static 10.0.0.0/8
	}
	sliding_window {
		store redis {
			address localhost:6379
			timeout 1s
		}
	}
}
(limits) {
	sliding_window {
		zone shared {
			limit 1 1s # lint:ignore SW002 it is so
			limit 5 1h
		}
	}
}
one.example.com {
	import limits
	handle /x/* {
		sliding_window @y first {client_ip} 100 1m
	}
	respond "# lint:ignore SW009 no comment"
	header X <<TEXT
		# lint:ignore SW010 no comment either
		TEXT
}
two.example.com, three.example.com {
	route {
		# lint:ignore SW001
		# another comment

		sliding_window /api/* {
			zone a {
				match {
					path /x
				}
				key {path}
			}
			zone b {
				limit 5 1m
			}
			store redis {
				timeout 5s
			}
		}
	}
	import other
}
`

func TestRead(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	other := "sliding_window {\n\tzone c {\n\t\tlimit 1 1s\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "other"), []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(filepath.Join(dir, "Caddyfile"), []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	at := func(line int) Place { return Place{"Caddyfile", line} }
	place := func(name string) *Zone { return s.Named(name, nil)[0] }
	for what, c := range map[string]struct{ got, want Place }{
		"the zone of a snippet":        {place("shared").At, at(14)},
		"its first limit":              {place("shared").Option("limit", 0), at(15)},
		"its second limit":             {place("shared").Option("limit", 1), at(16)},
		"its third limit":              {place("shared").Option("limit", 2), at(14)},
		"the zone of one line":         {place("first").At, at(23)},
		"an option on that":            {place("first").Option("key", 0), at(23)},
		"a matcher":                    {place("a").Option("match.path", 0), at(38)},
		"a key":                        {place("a").Option("key", 0), at(40)},
		"a limit of another zone":      {place("b").Option("limit", 0), at(43)},
		"an option of the store":       {s.OfStore(place("b"), "timeout"), at(46)},
		"another option":               {s.OfStore(place("b"), "password"), at(45)},
		"an option of the global one":  {s.OfStore(place("first"), "timeout"), at(8)},
		"another of the global one":    {s.OfStore(place("first"), "password"), at(6)},
		"an option of servers":         {s.Global["servers.trusted_proxies"][0], at(3)},
		"the zone of an imported file": {place("c").At, Place{"other", 2}},
	} {
		if c.got != c.want {
			t.Errorf("%s is at %v, want %v", what, c.got, c.want)
		}
	}
	if len(s.Zones) != 5 {
		t.Errorf("got %d zones, want 5: %+v", len(s.Zones), s.Zones)
	}
	want := []Ignore{{at(15), "SW002", "it is so", 15}, {at(32), "SW001", "", 35}}
	if !reflect.DeepEqual(s.Ignores, want) {
		t.Errorf("got the comments %+v\nwant %+v", s.Ignores, want)
	}
}

// The zone of the host comes first among zones of one name.
func TestNamed(t *testing.T) {
	s, err := Read("Caddyfile", []byte(strings.ReplaceAll("a.test {\n\tDIR\n}\nb.test {\n\tDIR\n}\n", "DIR", "sliding_window z {client_ip} 1 1s")))
	if err != nil {
		t.Fatal(err)
	}
	for host, line := range map[string]int{"a.test": 2, "b.test": 5, "c.test": 2} {
		if got := s.Named("z", []string{host})[0].At.Line; got != line {
			t.Errorf("of %s: line %d, want %d", host, got, line)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("sliding_window {\n}\n}\n} {\nzone"))
	f.Add([]byte("# lint:ignore\n\"# lint:ignore x"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows := strings.Count(string(text), "\n") + 1
		for _, g := range ignores("Caddyfile", text) {
			if g.At.Line > rows || g.covers > rows || g.covers < g.At.Line {
				t.Errorf("%+v of %d lines", g, rows)
			}
		}
		tokens, err := caddyfile.Tokenize(text, "Caddyfile")
		if err != nil {
			return
		}
		s := Source{Global: make(Options)}
		s.add(lines(tokens), []string{"site"})
		s.add(lines(tokens), nil)
		for i := range s.Zones {
			if z := &s.Zones[i]; z.At.Line < 1 || z.At.Line > rows || z.Option("limit", 0).Line < 1 {
				t.Errorf("%+v of %d lines", z, rows)
			}
		}
	})
}
