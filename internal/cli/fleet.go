package cli

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slidingwindow/caddy-sliding-window/internal/control"
)

// patience is how long each Caddy of a fleet may take to answer.
const patience = 10 * time.Second

// reply is what a Caddy of a fleet answers.
type reply struct {
	address string
	body    []byte
	err     error // names the address
}

// isFleet reports whether several Caddys are asked.
func (c *command) isFleet() bool { return len(c.distinct()) > 1 }

// distinct returns the addresses to ask. One that is given twice is asked once.
func (c *command) distinct() (addresses []string) {
	for _, address := range c.addresses {
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// askAll asks all Caddys at once, and returns their replies in the order of the addresses.
func (c *command) askAll(method, path string, question any) []reply {
	addresses := c.distinct()
	pending := make([]chan reply, len(addresses))
	for i, address := range addresses {
		pending[i] = make(chan reply, 1) // for a goroutine without a waiter
		go func() {
			body, err := askAdmin(address, method, control.Base+path, "", question)
			if err != nil && !strings.Contains(err.Error(), address) {
				err = fmt.Errorf("Caddy at %s: %w", address, err)
			}
			pending[i] <- reply{address, body, err}
		}()
	}
	late := time.After(patience)
	replies := make([]reply, len(pending))
	for i, answer := range pending {
		select {
		case replies[i] = <-answer:
			continue
		default:
		}
		select {
		case replies[i] = <-answer:
		case <-late:
			late = time.After(0) // for those that come after it
			replies[i] = reply{address: addresses[i], err: fmt.Errorf("asked the admin endpoint at %s: no answer within %s", addresses[i], patience)}
		}
	}
	return replies
}

// without returns an error that names the Caddys that did not answer; nil if all did.
func without(replies []reply) error {
	var missing []error
	for _, r := range replies {
		if r.err != nil {
			missing = append(missing, r.err)
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%d of %d Caddys did not answer:\n%w", len(missing), len(replies), errors.Join(missing...))
}

// answered is the answer of a Caddy of a fleet.
type answered[T any] struct {
	address string
	T       T
}

// read returns the answers of those that answered. An answer that is not one becomes an error of its reply.
func read[T any](replies []reply) (answers []answered[T]) {
	for i := range replies {
		r := &replies[i]
		if r.err != nil {
			continue
		}
		a := answered[T]{address: r.address}
		if json.Unmarshal(r.body, &a.T) != nil {
			r.err = fmt.Errorf("Caddy at %s: %w", r.address, errAnswer)
			continue
		}
		answers = append(answers, a)
	}
	return answers
}

// inFleet asks all Caddys, and prints what those say that answer. It is an error if one does not.
func inFleet[T any](c *command, cmd *cobra.Command, method, path string, question any, table func(io.Writer, []answered[T])) error {
	replies := c.askAll(method, path, question)
	answers := read[T](replies)
	if c.json {
		if _, err := cmd.OutOrStdout().Write(jsonFor(cmd.OutOrStdout(), linesOf(replies))); err != nil {
			return err
		}
		return without(replies)
	}
	out := bufio.NewWriter(cmd.OutOrStdout())
	if len(answers) > 0 {
		table(&output{out, c.widthOf(cmd.OutOrStdout())}, answers)
	}
	return cmp.Or(out.Flush(), without(replies))
}

// linesOf returns a line of JSON for each reply.
func linesOf(replies []reply) (lines []byte) {
	for _, r := range replies {
		line := struct {
			Address string          `json:"address"`
			Answer  json.RawMessage `json:"answer,omitempty"`
			Error   string          `json:"error,omitempty"`
		}{Address: r.address, Answer: r.body}
		if r.err != nil {
			line.Answer, line.Error = nil, r.err.Error()
		}
		text, _ := json.Marshal(line) // it has read the answer
		lines = append(append(lines, text...), '\n')
	}
	return lines
}

// byCaddy prints each answer under the address of its Caddy.
func byCaddy[T any](show func(io.Writer, *T)) func(io.Writer, []answered[T]) {
	return func(w io.Writer, answers []answered[T]) {
		for i := range answers {
			if i > 0 {
				_, _ = fmt.Fprintln(w)
			}
			_, _ = fmt.Fprintf(w, "Caddy at %s:\n", answers[i].address)
			show(w, &answers[i].T)
		}
	}
}

// fleetZone is a zone with the sum of what Caddys have decided that have it alike.
type fleetZone struct {
	control.ZoneInfo
	at []string // the addresses of these; nil if all have it
}

// sumZones returns the zones of a fleet. A zone that is not alike everywhere is there several times.
func sumZones(answers []answered[control.Zones]) []fleetZone {
	var all []fleetZone
	places := make(map[string]int)
	for _, a := range answers {
		for _, z := range a.T.Zones {
			alike := z
			alike.Outcomes, alike.EnforceReason = nil, ""
			id, _ := json.Marshal(alike) // strings and numbers
			at, ok := places[string(id)]
			if !ok {
				at = len(all)
				places[string(id)] = at
				outcomes := z.Outcomes
				z.Outcomes = make(map[string]int64, len(outcomes))
				all = append(all, fleetZone{ZoneInfo: z})
				z.Outcomes = outcomes
			}
			for outcome, n := range z.Outcomes {
				all[at].Outcomes[outcome] += n
			}
			all[at].at = append(all[at].at, a.address)
		}
	}
	for i := range all {
		if len(all[i].at) == len(answers) {
			all[i].at = nil
		}
	}
	slices.SortStableFunc(all, func(a, b fleetZone) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Store, b.Store)) })
	return all
}

// mergeTop returns the count keys that are denied or charged most by all Caddys together. Each answer has
// MaxTop keys, or all. A key that such a list lacks may have as much there as its last one.
func mergeTop(answers []answered[control.Top], count int) control.Top {
	merged := answers[0].T
	merged.Total, merged.Keys = 0, nil
	places := make(map[string]int)
	for _, a := range answers {
		merged.Total += a.T.Total
		merged.Since = min(merged.Since, a.T.Since)
		for _, k := range a.T.Keys {
			if _, ok := places[k.Key]; !ok {
				places[k.Key] = len(merged.Keys)
				merged.Keys = append(merged.Keys, control.TopKey{Key: k.Key, Cut: k.Cut})
			}
		}
	}
	for _, a := range answers {
		rest := int64(0)
		if n := len(a.T.Keys); n >= control.MaxTop {
			rest = a.T.Keys[n-1].Count
		}
		has := make(map[string]bool, len(a.T.Keys))
		for _, k := range a.T.Keys {
			has[k.Key] = true
			sum := &merged.Keys[places[k.Key]]
			sum.Count, sum.Error = sum.Count+k.Count, sum.Error+k.Error
		}
		for i := range merged.Keys {
			if sum := &merged.Keys[i]; !has[sum.Key] {
				sum.Count, sum.Error = sum.Count+rest, sum.Error+rest
			}
		}
	}
	slices.SortStableFunc(merged.Keys, func(a, b control.TopKey) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) })
	merged.Keys = merged.Keys[:min(count, len(merged.Keys))]
	return merged
}
