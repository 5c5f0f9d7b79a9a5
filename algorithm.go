package slidingwindow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/slidingwindow/caddy-sliding-window/internal/config/foreign"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/window"
)

// Algorithm says how the history of a key is kept.
type Algorithm struct {
	// `zset` keeps every unit, and is exact. `slices` counts units per slice of
	// the window: constant memory, early by at most one slice. `gcra` lets a burst
	// pass at once and then one unit after the other: two numbers per limit.
	// `log` is as exact as zset, and packed into a few bytes per request. `stream` is
	// as exact, and keeps who and what in a Redis Stream.
	// Default: `zset`.
	Name string `json:"name,omitempty"`

	// Only for slices: how many slices a window is cut into. Default: 60.
	Count Value `json:"count,omitempty"`

	// Only for slices: how long a slice is; instead of `count`.
	// Default: the window divided by `count`.
	Size Value `json:"size,omitempty"`

	// Only for slices: count the slice that is leaving the window in part, as if
	// its units had been spread evenly. Closer on average, but up to twice the
	// limit may pass in one window. Default: false, the slice counts as a whole.
	Weighted bool `json:"weighted,omitempty"`

	// Only for slices: count in slices of two lengths. As accurate as slices of
	// the fine length, for a decision that reads few of them. Excludes the other
	// options. Default: slices of one length.
	Layers *Layers `json:"layers,omitempty"`

	// Only for slices: let the load choose how long a slice is. Excludes the other
	// options. Default: all slices are as long.
	Adaptive *Adaptive `json:"adaptive,omitempty"`

	// Only for gcra: how many units may pass at once. In one window, burst and
	// limit less one may pass. Default: the limit.
	Burst Value `json:"burst,omitempty"`

	// Only for gcra in a redis store: whether the server decides with its command
	// CL.THROTTLE, if it is Dragonfly or has the module redis-cell. It takes a zone
	// that is alone in its handler and has one limit, without placeholders, in a
	// window of whole seconds of which a unit is a whole number of milliseconds;
	// times are whole seconds then, and overrides cannot change the limit. `auto` uses
	// it where all of that is so, `on` does not take less, `off` never does. Default: `off`.
	Native string `json:"native,omitempty"`

	// Only for stream: what to note of each request that is admitted, in order.
	// Default: nothing but its time and cost.
	Fields []Field `json:"fields,omitempty"`

	// Only for stream: how long what was noted stays readable, if longer than the
	// longest window. It counts no longer for that. The memory store, where there
	// is nothing to read, ignores it. Default: 0, the longest window.
	Keep Value `json:"keep,omitempty"`

	// Only for stream: how many bytes of a value are noted. A longer value ends with
	// "…[<bytes>]", which says how long it was. At least 32. Default: 256.
	MaxValue Value `json:"max_value,omitempty"`

	// Only for stream: how many bytes the names and values of one request take
	// together. Values are shortened in the order of the fields, none below 32 bytes.
	// Default: 1024, or what the fields need if that is more.
	MaxEntry Value `json:"max_entry,omitempty"`
}

// Field is something to note of a request, beside its time and cost.
type Field struct {
	// The name, different from those of the other fields. `cost`, `total` and
	// `gone` are taken.
	Name string `json:"name"`

	// The value; placeholders are allowed.
	Value string `json:"value"`
}

// The words for who decides on gcra.
const (
	nativeAuto = "auto"
	nativeOn   = "on"
	nativeOff  = "off"
)

// builders return an algorithm as the engine takes it, by its word.
var builders = map[string]func(*Algorithm) (window.Algorithm, error){
	"zset":   func(*Algorithm) (window.Algorithm, error) { return window.Zset{}, nil },
	"log":    func(*Algorithm) (window.Algorithm, error) { return window.Log{}, nil },
	"stream": func(a *Algorithm) (window.Algorithm, error) { return a.stream() },
	"slices": (*Algorithm).slices,
	"gcra":   func(a *Algorithm) (window.Algorithm, error) { return a.gcra() },
}

// algorithmNames are the words of builders, in the order in which errors name them.
var algorithmNames = []string{"zset", "log", "stream", "slices", "gcra"}

// algorithmOptions are the options, each with the word of its algorithm.
var algorithmOptions = []struct {
	name, algorithm string
	set             func(*Algorithm) bool
}{
	{"count", "slices", func(a *Algorithm) bool { return a.Count != "" }},
	{"size", "slices", func(a *Algorithm) bool { return a.Size != "" }},
	{"strict", "slices", func(*Algorithm) bool { return false }}, // the word for no weighted
	{"weighted", "slices", func(a *Algorithm) bool { return a.Weighted }},
	{"layers", "slices", func(a *Algorithm) bool { return a.Layers != nil }},
	{"adaptive", "slices", func(a *Algorithm) bool { return a.Adaptive != nil }},
	{"burst", "gcra", func(a *Algorithm) bool { return a.Burst != "" }},
	{"native", "gcra", func(a *Algorithm) bool { return a.Native != "" }},
	{"fields", "stream", func(a *Algorithm) bool { return len(a.Fields) > 0 }},
	{"keep", "stream", func(a *Algorithm) bool { return a.Keep != "" }},
	{"max_value", "stream", func(a *Algorithm) bool { return a.MaxValue != "" }},
	{"max_entry", "stream", func(a *Algorithm) bool { return a.MaxEntry != "" }},
}

// algorithmOf returns the word of the algorithm that an option belongs to; empty if it is the
// option of none.
func algorithmOf(option string) string {
	for i := range algorithmOptions {
		if algorithmOptions[i].name == option {
			return algorithmOptions[i].algorithm
		}
	}
	return ""
}

var errZero = errors.New("0: must be greater than 0")

// compile returns the algorithm as the engine takes it, and what it notes of requests, or what is wrong with it.
func (a *Algorithm) compile() (engine window.Algorithm, notes *template.Fields, err error) {
	if a == nil {
		return window.Zset{}, nil, nil
	}
	name := a.Name
	if name == "" {
		name = "zset"
	}
	for _, option := range algorithmOptions {
		if option.algorithm != name && option.set(a) {
			return nil, nil, errForeign(name, option.name, option.algorithm)
		}
	}
	build := builders[name]
	if build == nil {
		return nil, nil, fmt.Errorf("algorithm %q is unknown; %s", name, cmp.Or(foreign.Cure(foreign.Algorithm, name), suggest.Cure(name, algorithmNames)))
	}
	if engine, err = build(a); err == nil {
		notes, err = a.notes()
	}
	if err == nil {
		err = window.CheckAlgorithm(engine)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("algorithm %s: %w", name, err)
	}
	return engine, notes, nil
}

// plain returns the algorithm, which has been checked, with values spelt in one way and
// without those that are the default for the limits; nil if it is the default itself.
func (a *Algorithm) plain(limits []Limit) *Algorithm {
	p := *a
	if p.Name = unless(p.Name, "zset"); p.Name == "" {
		return nil // it has no options
	}
	p.Count = unless(p.Count.canonicalInt(), Value(strconv.Itoa(window.DefaultSlices)))
	p.Size = p.Size.canonicalDuration()
	if l := a.Layers; l != nil {
		p.Layers = &Layers{l.Coarse.canonicalDuration(), l.Fine.canonicalDuration()}
	}
	if ad := a.Adaptive; ad != nil {
		p.Adaptive = &Adaptive{ad.Min.canonicalDuration(), ad.Max.canonicalDuration()}
	}
	p.Burst = p.Burst.canonicalInt()
	if len(limits) == 1 {
		p.Burst = unless(p.Burst, limits[0].Max)
	}
	p.Native = unless(p.Native, nativeOff)
	p.Keep = unless(p.Keep.canonicalDuration(), canonicalDuration(0))
	p.MaxValue = unless(p.MaxValue.canonicalInt(), Value(strconv.Itoa(defaultMaxValue)))
	p.MaxEntry = unless(p.MaxEntry.canonicalInt(), Value(strconv.FormatInt(a.defaultMaxEntry(), 10)))
	return &p
}

func errForeign(name, option, owner string) error {
	return fmt.Errorf("algorithm %s: %s is an option of %s", name, option, owner)
}

func (a *Algorithm) gcra() (window.GCRA, error) {
	var g window.GCRA
	var err error
	if a.Burst != "" {
		if g.Burst, err = a.Burst.int(); err == nil && g.Burst == 0 {
			err = errZero
		}
		if err != nil {
			return g, fmt.Errorf("burst %w", err)
		}
	}
	switch a.Native {
	case nativeAuto:
		g.Native = window.NativeAuto
	case nativeOn:
		g.Native = window.NativeOn
	default:
		err = checkWord("native", a.Native, "", nativeAuto, nativeOn, nativeOff)
	}
	return g, err
}

// Layers are slices of two lengths, one over the other.
type Layers struct {
	// How long a coarse slice is: a whole multiple of `fine`, and no longer than
	// any window of the zone.
	Coarse Value `json:"coarse"`

	// How long a fine slice is; a denial comes early by at most that.
	Fine Value `json:"fine"`
}

// Adaptive bounds the length of slices, which is chosen from how much of the
// limit is left.
type Adaptive struct {
	// How long a slice is when nothing is left.
	Min Value `json:"min"`

	// How long a slice is while more than half of the limit is left; a denial comes
	// early by at most that.
	Max Value `json:"max"`
}

// slices returns the algorithm of that name as the engine takes it.
func (a *Algorithm) slices() (window.Algorithm, error) {
	if a.Layers != nil {
		return a.layers()
	}
	s := window.Slices{Weighted: a.Weighted}
	var err error
	if a.Count != "" {
		if s.Count, err = a.Count.int(); err == nil && s.Count == 0 {
			err = errZero
		}
		if err != nil {
			return nil, fmt.Errorf("count %w", err)
		}
	}
	if a.Size != "" {
		if s.Size, err = a.Size.length(); err != nil {
			return nil, fmt.Errorf("size %w", err)
		}
	}
	if ad := a.Adaptive; ad != nil {
		if s.Min, err = ad.Min.length(); err != nil {
			return nil, fmt.Errorf("adaptive %s %s: min %w", ad.Min, ad.Max, err)
		}
		if s.Max, err = ad.Max.length(); err != nil {
			return nil, fmt.Errorf("adaptive %s %s: max %w", ad.Min, ad.Max, err)
		}
	}
	return s, nil
}

func (a *Algorithm) layers() (window.Algorithm, error) {
	var s window.Layers
	var err error
	layers := fmt.Sprintf("layers %s %s", a.Layers.Coarse, a.Layers.Fine)
	if s.Coarse, err = a.Layers.Coarse.length(); err != nil {
		return nil, fmt.Errorf("%s: coarse %w", layers, err)
	}
	if s.Fine, err = a.Layers.Fine.length(); err != nil {
		return nil, fmt.Errorf("%s: fine %w", layers, err)
	}
	switch {
	case a.Count != "":
		return nil, fmt.Errorf("%s and count %s cannot be combined; take out one", layers, a.Count)
	case a.Size != "":
		return nil, fmt.Errorf("%s and size %s cannot be combined; take out one", layers, a.Size)
	case a.Adaptive != nil:
		return nil, fmt.Errorf("%s and adaptive %s %s cannot be combined; take out one", layers, a.Adaptive.Min, a.Adaptive.Max)
	case a.Weighted:
		return nil, fmt.Errorf("%s and weighted cannot be combined; take out weighted, for layers are strict", layers)
	}
	if err := window.CheckAlgorithm(s); err != nil {
		return nil, fmt.Errorf("%s: %w", layers, err)
	}
	return s, nil
}

// stream returns the algorithm of that name as the engine takes it, or what is
// wrong with its options.
func (a *Algorithm) stream() (window.Algorithm, error) {
	if len(a.Fields) > window.MaxFields {
		return nil, fmt.Errorf("fields: %d are too many; %d are allowed", len(a.Fields), window.MaxFields)
	}
	for i, f := range a.Fields {
		if err := f.check(a.Fields[:i]); err != nil {
			return nil, err
		}
	}
	var s window.Stream
	if a.Keep != "" {
		var err error
		if s.Keep, err = a.Keep.duration(); err != nil {
			return nil, fmt.Errorf("keep %w", err)
		}
	}
	return s, nil
}

// Bounds of what is noted of a request, in bytes.
const (
	defaultMaxValue = 256
	commonMaxEntry  = 1024
)

func (a *Algorithm) fieldNames() []string {
	names := make([]string, len(a.Fields))
	for i, f := range a.Fields {
		names[i] = f.Name
	}
	return names
}

func (a *Algorithm) defaultMaxEntry() int64 {
	return max(commonMaxEntry, template.LeastEntry(a.fieldNames()))
}

// noteBounds returns the bounds of the fields, or what is wrong with them.
func (a *Algorithm) noteBounds() (b template.Bounds, err error) {
	b = template.Bounds{Value: defaultMaxValue, Entry: a.defaultMaxEntry()}
	if a.MaxValue != "" {
		if b.Value, err = a.MaxValue.int(); err != nil {
			return b, fmt.Errorf("max_value %w", err)
		}
	}
	if a.MaxEntry != "" {
		if b.Entry, err = a.MaxEntry.int(); err != nil {
			return b, fmt.Errorf("max_entry %w", err)
		}
	}
	return b, b.Check(a.fieldNames())
}

// notes compiles the fields. It returns nil without fields.
func (a *Algorithm) notes() (*template.Fields, error) {
	bounds, err := a.noteBounds()
	if err != nil || len(a.Fields) == 0 {
		return nil, err
	}
	fields := template.NewFields(bounds)
	for _, f := range a.Fields {
		fields.Add(f.Name, f.Value)
	}
	return fields, nil
}

// check refuses a field that cannot work after others.
func (f Field) check(others []Field) error {
	switch f.Name {
	case "":
		return fmt.Errorf("fields: the name of the value %q is empty", f.Value)
	case "cost", "total", "gone":
		return fmt.Errorf("fields: the name %s is taken; use another one than cost, total and gone", f.Name)
	}
	if slices.ContainsFunc(others, func(o Field) bool { return o.Name == f.Name }) {
		return fmt.Errorf("fields: duplicate field %s; keep one", f.Name)
	}
	if err := template.Check(f.Value); err != nil {
		return fmt.Errorf("fields: %s %w", f.Name, err)
	}
	return nil
}

// length is the duration of a slice.
func (v Value) length() (time.Duration, error) {
	d, err := v.duration()
	if err == nil && d == 0 {
		err = errZero
	}
	return d, err
}
