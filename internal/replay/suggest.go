package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile" // the adapter of Caddyfiles

	"github.com/slidingwindow/caddy-sliding-window/internal/config/template"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/accesslog"
	"github.com/slidingwindow/caddy-sliding-window/internal/replay/suggest"
	"github.com/slidingwindow/caddy-sliding-window/internal/request"
)

// SuggestOptions are those of Suggest.
type SuggestOptions struct {
	Logs    []string // files; "-" is Stdin
	Stdin   io.Reader
	Key     string   // of a zone: a text with placeholders, or the name of one
	Match   []string // matchers of a zone, each a line of a Caddyfile
	Windows []time.Duration
	Keys    bool // whether the report has keys
	Top     int
	Reorder time.Duration
	Memory  int64 // bytes that keys and times take at most
	// Progress is called now and then, if it is set.
	Progress func(accesslog.Progress)
}

// Suggestion is what a log says of limits.
type Suggestion struct {
	Log Log `json:"log"`
	suggest.Result
	Key   string   `json:"key"`
	Match []string `json:"match,omitempty"`
	// The zone to paste, as a Caddyfile has it.
	Zone  string   `json:"zone"`
	Name  string   `json:"name"` // of the zone
	Notes []string `json:"notes"`
}

// Suggest finds limits for the requests of logs.
func Suggest(o SuggestOptions) (*Suggestion, error) {
	defer holdHeap(o.Memory)()
	s := &suggesting{SuggestOptions: o, key: braced(o.Key)}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if s.engine != nil {
		defer s.engine.close()
	}
	if err := s.read(); err != nil {
		return nil, err
	}
	return s.result(), nil
}

// suggesting is a Suggest under way.
type suggesting struct {
	SuggestOptions
	key       string  // as a zone has it
	engine    *engine // nil: the key is the address of the client, and nothing has to match
	address   template.Key
	collector *suggest.Collector
	log       accesslog.Report
	late      int64
	were429   int64
}

// braced returns a key as a zone has it: a name of a placeholder gets its braces.
func braced(key string) string {
	if !strings.ContainsAny(key, "{ ") && key != "all" {
		key = "{" + key + "}"
	}
	return key
}

// prepare readies what tells keys.
func (s *suggesting) prepare() (err error) {
	if len(s.Match) == 0 && s.key == "{client_ip}" {
		s.address, err = template.NewKey(template.DefaultKey, template.Prefixes{V4: 32, V6: 64})
		return err
	}
	text := ":80 {\n\tsliding_window {\n\t\tzone suggested {\n\t\t\tkey `" + s.key + "`\n\t\t\tlimit 1 1s\n\t\t\tempty_key skip\n"
	if len(s.Match) > 0 {
		text += "\t\t\tmatch {\n" + strings.Join(s.Match, "\n") + "\n\t\t\t}\n"
	}
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text+"\t\t}\n\t}\n}\n"), nil)
	if err != nil {
		return fmt.Errorf("--key %s, --match %s: %w", s.Key, strings.Join(s.Match, ", "), cut(err))
	}
	p, err := newPlan(adapted, "suggest", setting{name: "suggest", maxKeys: keysWithin(0)})
	if err != nil {
		return err
	}
	p.siteless, p.servers[0].clientFromLog = true, true
	s.engine = &engine{plan: p}
	s.engine.decided = func(l *accesslog.Line, o request.Outcome) error { return s.collector.Add(o.Key, l.Start) }
	return nil
}

// cut takes the place in the text that no operator wrote off an error.
func cut(err error) error {
	text, _, _ := strings.Cut(err.Error(), ", at Caddyfile:")
	text = strings.TrimPrefix(text, "parsing caddyfile tokens for 'sliding_window': ")
	return errors.New(strings.TrimPrefix(text, "zone suggested: "))
}

// came is a request on its way through the queue: its key, or its line.
type came struct {
	key  string
	line *accesslog.Line
}

// read collects the requests of the logs.
func (s *suggesting) read() (err error) {
	how := reading{logs: s.Logs, stdin: s.Stdin, prepare: prepare, reorder: s.Reorder, queued: bytesOfLine, memory: s.Memory, progress: s.Progress}
	if s.engine == nil {
		how.prepare, how.queued = s.prepareAddress, 128
	}
	s.log, s.late, err = readInOrder(how, s.came, s.take)
	return err
}

// came returns what the queue keeps of a request.
func (s *suggesting) came(l *accesslog.Line) came {
	if s.collector == nil {
		s.collector = suggest.New(suggest.Options{Windows: s.Windows, WholeSeconds: l.WholeSeconds(), Memory: s.Memory - s.Memory/8, Top: s.Top})
	}
	if l.Status == http.StatusTooManyRequests {
		s.were429++
	}
	if s.engine == nil {
		return came{key: l.Value.(string)}
	}
	line := *l
	return came{line: &line}
}

// take counts a request.
func (s *suggesting) take(at int64, c came) error {
	if c.line == nil {
		return s.collector.Add(c.key, at)
	}
	c.line.Start = at
	return s.engine.take(c.line)
}

// prepareAddress has the key of a line by its client's address, beside the goroutine that counts. It keeps nothing of the line.
func (s *suggesting) prepareAddress(l *accesslog.Line) {
	key, _, _ := s.address.KeyOf([]string{cmp.Or(l.ClientIP, l.RemoteIP)}) // no error: there is one placeholder
	l.Value = strings.Clone(key)
}

// result returns what was found.
func (s *suggesting) result() *Suggestion {
	r := &Suggestion{
		Key: s.key, Match: s.Match, Notes: []string{}, Log: newLog(s.Logs, &s.log, s.late, s.were429),
	}
	if s.collector != nil {
		r.Result = s.collector.Result()
	}
	if r.Requests > 0 {
		r.Log.From, r.Log.To = r.Result.From.UTC().Format(time.RFC3339), r.Result.To.UTC().Format(time.RFC3339)
	}
	for i := range r.Top {
		r.Top[i].Key = shownKey(r.Top[i].Key, s.Keys)
	}
	r.Name, r.Zone = zoneFor(s.key, s.Match, r.Pair)
	if s.were429 > 0 {
		r.Notes = append(r.Notes, notes429(s.were429))
	}
	if s.engine != nil {
		r.Notes = append(r.Notes, s.engine.plan.notes...)
	}
	if s.log.Whole > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%d requests have times in whole seconds: peaks are those of a window that is a second longer", s.log.Whole))
	}
	if s.late > 0 {
		r.Notes = append(r.Notes, notesLate(s.late, s.Reorder))
	}
	if f := r.Folded; f != nil {
		r.Notes = append(r.Notes, fmt.Sprintf("the times of %d keys with low peaks did not fit into the memory: peaks are exact, and what low limits deny is known but for bounds; raise --memory", f.Keys))
	}
	for _, w := range r.Windows {
		if w.Longer {
			r.Notes = append(r.Notes, "the log is shorter than "+w.Text+": peaks in that window are too low")
		}
	}
	return r
}

// manyUnits is the limit from which on algorithm log takes much less memory than the default.
const manyUnits = 500

// zoneFor returns the name and the text of a zone with limits.
func zoneFor(key string, match []string, limits []suggest.Limit) (name, text string) {
	name = "per_" + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.TrimPrefix(strings.TrimPrefix(key, "{header."), "{http.request.")), "_")
	if key == "{client_ip}" {
		name = "per_client"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "sliding_window {\n\tzone %s {\n\t\tkey %s\n", name, quoted(key))
	if len(match) > 0 {
		fmt.Fprintf(&b, "\t\tmatch {\n\t\t\t%s\n\t\t}\n", strings.Join(match, "\n\t\t\t"))
	}
	many := false
	for _, l := range limits {
		fmt.Fprintf(&b, "\t\tlimit %d %s\n", l.Limit, l.Text)
		many = many || l.Limit >= manyUnits
	}
	if many {
		b.WriteString("\t\talgorithm log\n")
	}
	b.WriteString("\t\tenforce shadow\n\t}\n}\n")
	return name, b.String()
}

// quoted returns a word of a Caddyfile.
func quoted(word string) string {
	if strings.ContainsAny(word, " \t\"") {
		return "`" + word + "`"
	}
	return word
}
