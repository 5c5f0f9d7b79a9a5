// Package written finds the lines of a Caddyfile: where zones and their options are, which the adapter does not
// keep, and comments that tell lint to ignore a finding. It reads tokens, and nothing of what they mean.
package written

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Place is a line of a file. The zero Place is not known.
type Place struct {
	File string
	Line int
}

// Options are the lines of the options in a block, by their words from the outside in, as "store.timeout".
type Options map[string][]Place

func (o Options) add(words []string, at Place) {
	name := strings.Join(words, ".")
	o[name] = append(o[name], at)
}

// first returns the line of the first option of a name that there is.
func (o Options) first(names ...string) (Place, bool) {
	for _, name := range names {
		if places := o[name]; len(places) > 0 {
			return places[0], true
		}
	}
	return Place{}, false
}

// Zone is a zone as it is written.
type Zone struct {
	Name string
	At   Place
	// Sites are the addresses of the site around it; none in a snippet that is not imported.
	Sites []string
	// Options are those of the zone, and Handler those of the directive around it.
	Options, Handler Options
}

// Option returns the n-th line, from 0 on, of an option of the zone, and otherwise the line of the zone.
func (z *Zone) Option(name string, n int) Place {
	if places := z.Options[name]; n < len(places) {
		return places[n]
	}
	return z.At
}

// Source is a Caddyfile with what it imports. The zero Source knows no lines.
type Source struct {
	Zones   []Zone
	Global  Options // of the global options
	Ignores []Ignore
}

// Read reads a Caddyfile, and the files that it imports.
func Read(file string, text []byte) (*Source, error) {
	blocks, err := caddyfile.Parse(file, text)
	if err != nil {
		return nil, err
	}
	s := &Source{Global: make(Options)}
	files := []string{file}
	for _, block := range blocks {
		for _, segment := range block.Segments {
			s.add(lines(segment), block.GetKeysText())
			for i := range segment {
				if name := segment[i].File; !slices.Contains(files, name) {
					files = append(files, name)
				}
			}
		}
	}
	for _, name := range files {
		if name != file {
			if text, err = os.ReadFile(name); err != nil {
				return nil, err
			}
		}
		s.Ignores = append(s.Ignores, ignores(name, text)...)
	}
	s.shorten()
	return s, nil
}

// Named returns the zones of a name. Those in a site of one of the hosts come first.
func (s *Source) Named(name string, hosts []string) (zones []*Zone) {
	for i := range s.Zones {
		if z := &s.Zones[i]; z.Name == name {
			zones = append(zones, z)
		}
	}
	slices.SortStableFunc(zones, func(a, b *Zone) int { return b.isOn(hosts) - a.isOn(hosts) })
	return zones
}

// isOn returns 1 if an address of the site has one of the hosts, else 0.
func (z *Zone) isOn(hosts []string) int {
	for _, host := range hosts {
		if slices.ContainsFunc(z.Sites, func(site string) bool { return strings.Contains(site, host) }) {
			return 1
		}
	}
	return 0
}

// OfStore returns the line of an option of the store that a zone uses, or of what is nearest to it.
func (s *Source) OfStore(z *Zone, option string) Place {
	if at, ok := z.Handler.first("store."+option, "store"); ok {
		return at
	}
	if at, ok := s.Global.first("sliding_window.store."+option, "sliding_window.store"); ok {
		return at
	}
	return z.At
}

// line is a line of a Caddyfile: the words of the blocks around it and its own, and what follows.
type line struct {
	words, args []string
	at          Place
}

// lines returns the lines of a segment.
func lines(tokens []caddyfile.Token) (all []line) {
	var open []string // words of the blocks
	for i := range tokens {
		t := &tokens[i]
		switch {
		case t.Text == "{" && len(all) > 0 && !begins(tokens, i):
			open = slices.Clone(all[len(all)-1].words)
		case t.Text == "}" && len(open) > 0 && begins(tokens, i):
			open = open[:len(open)-1]
		case len(all) == 0 || begins(tokens, i):
			all = append(all, line{append(slices.Clone(open), t.Text), nil, Place{t.File, t.Line}})
		default:
			last := &all[len(all)-1]
			last.args = append(last.args, t.Text)
		}
	}
	return all
}

// begins reports whether a token is the first of its line.
func begins(tokens []caddyfile.Token, i int) bool {
	return i == 0 || tokens[i-1].File != tokens[i].File || tokens[i-1].Line+strings.Count(tokens[i-1].Text, "\n") != tokens[i].Line
}

// directive is the name of the directive, and of the global option.
const directive = "sliding_window"

// add notes the zones in lines, or the options if they are global ones.
func (s *Source) add(all []line, sites []string) {
	var handler Options // of the directive that the line is in
	depth := 0          // of its name among words
	zone := -1          // the index of the zone that the line is in
	for _, l := range all {
		if len(sites) == 0 {
			s.Global.add(l.words, l.at)
		}
		word := l.words[len(l.words)-1]
		if handler != nil && len(l.words) <= depth+1 {
			handler = nil
		}
		switch {
		case handler == nil && word == directive && len(sites) > 0:
			handler, depth, zone = make(Options), len(l.words)-1, -1
			if name := inOneLine(l.args); name != "" {
				s.Zones = append(s.Zones, Zone{name, l.at, sites, make(Options), handler})
			}
		case handler == nil:
		case len(l.words) == depth+2 && word == "zone" && len(l.args) > 0:
			s.Zones = append(s.Zones, Zone{l.args[0], l.at, sites, make(Options), handler})
			zone = len(s.Zones) - 1
		case zone >= 0 && l.words[depth+1] == "zone":
			s.Zones[zone].Options.add(l.words[depth+2:], l.at)
		default:
			handler.add(l.words[depth+1:], l.at)
		}
	}
}

// inOneLine returns the name of the zone on the line of the directive; empty if the zones are in its block.
func inOneLine(args []string) string {
	if len(args) > 0 && (strings.HasPrefix(args[0], "@") || strings.HasPrefix(args[0], "/") || args[0] == "*") {
		args = args[1:]
	}
	if len(args) < 3 {
		return ""
	}
	return args[0]
}

// shorten writes files below the working directory without it.
func (s *Source) shorten() {
	wd, err := os.Getwd()
	if err != nil {
		return
	}
	short := func(at *Place) {
		if name, err := filepath.Rel(wd, at.File); err == nil && filepath.IsAbs(at.File) && filepath.IsLocal(name) {
			at.File = name
		}
	}
	each := func(o Options) {
		for _, places := range o {
			for i := range places {
				short(&places[i])
			}
		}
	}
	for i := range s.Zones {
		z := &s.Zones[i]
		short(&z.At)
		each(z.Options)
		each(z.Handler)
	}
	each(s.Global)
	for i := range s.Ignores {
		short(&s.Ignores[i].At)
	}
}
