// Package wire writes calls of the script and of CL.THROTTLE, sends them, and reads their replies.
// The header of lua/driver.lua is the specification.
package wire

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/slidingwindow/caddy-sliding-window/window"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/naming"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/scripts"
	"github.com/slidingwindow/caddy-sliding-window/window/redis/internal/totals"
)

// Op is what the script does with the requests of a call.
type Op string

// Operations of the script.
const (
	Take       Op = "take"
	Peek       Op = "peek"
	Settle     Op = "settle"
	SettleEach Op = "settle_each" // a reply per settlement
	Reset      Op = "reset"
)

func (op Op) decides() bool { return op == Take || op == Peek }

func (op Op) settles() bool { return op == Settle || op == SettleEach }

// Call is one run of the script, or of CL.THROTTLE: what is asked, and the answer.
type Call struct {
	Key      string // the first: it picks the node of a Cluster
	Op       Op
	Requests [][]window.Charge
	Names    []naming.Naming // under each of which the requests are charged
	First    int             // the place of its first request among those that are decided on
	Native   bool            // asks CL.THROTTLE, not the script
	Kept     bool            // by its caller, who writes it again
	Reply    []int64
	Err      error

	args []any
	now  sent // the time in ms, or nothing: the first argument behind the keys

	// Room for the command and what its arguments are made of. It is used again.
	cmd   command
	buf   []byte
	ends  []int // in buf, of keys, id and plan
	texts []string
	plan  plan

	decisions []window.Decision // of the reply; reused
}

// Writer writes calls. It is safe for concurrent use.
type Writer struct {
	Names []naming.Naming // of counters, where a call has no others
	// The time that calls are made at, in Unix milliseconds. Nil: the server's clock.
	Now func() int64
	// What tells this process from others.
	Instance string
	// The name of this process, for operators: that of the host, and the beginning of Instance.
	Name string
	// What this process holds.
	Totals *totals.Table

	counter atomic.Uint64 // of calls
}

// NewWriter returns a writer of an instance of its own.
func NewWriter(names []naming.Naming, now func() int64) *Writer {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails
	w := &Writer{Names: names, Now: now, Instance: base64.RawURLEncoding.EncodeToString(b[:])}
	w.Name = hostName() + "-" + w.Instance[:8]
	return w
}

// hostName returns the name of the host up to its first dot, as far as it is short and readable.
func hostName() string {
	const most = 16 // for fields of hashes that Redis packs
	name, _ := os.Hostname()
	name, _, _ = strings.Cut(name, ".")
	name = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return cmp.Or(name[:min(len(name), most)], "caddy")
}

// Sent returns the takes of units that are held, which are to be answered once. The call must be over.
func (c *Call) Sent() []totals.Sent {
	sent := c.plan.sent
	c.plan.sent = c.plan.sent[:0]
	return sent
}

// appendID appends a name for units that no other process makes too. It need not be secret.
func (w *Writer) appendID(dst []byte) []byte {
	return strconv.AppendUint(append(dst, w.Instance...), w.counter.Add(1), 36)
}

// Script writes a call of the script.
func (w *Writer) Script(names []naming.Naming, op Op, requests [][]window.Charge, numbers ...int64) *Call {
	return w.Write(&Call{Names: names}, op, requests, numbers...)
}

// Write makes c a call of the script, as the header of lua/driver.lua describes
// it. To the script, a request under two names is one with twice the charges; but
// settle, settle_each and reset take one charge at a time, and settling has two numbers after each. Totals of units that
// are held have none here: the table has them.
func (w *Writer) Write(c *Call, op Op, requests [][]window.Charge, numbers ...int64) *Call {
	c.Op, c.Requests, c.First, c.Native, c.Reply, c.Err = op, requests, 0, false, nil, nil
	c.buf, c.ends, c.args = c.buf[:0], c.ends[:0], c.args[:0]
	c.plan.reset()
	c.plan.writer, c.plan.op, c.plan.counts = w, op, len(w.Names) > 0 && &c.Names[0] == &w.Names[0]
	decides := op.decides()
	for i, charges := range requests {
		c.plan.place = i
		first := len(c.buf)
		for k := range c.Names {
			n := &c.Names[k]
			for j := range charges {
				c.buf = n.AppendKey(c.buf, &charges[j])
				c.ends = append(c.ends, len(c.buf))
			}
			if !decides {
				c.plan.apart(c.Names[k:k+1], charges)
			}
			if op.settles() && numbers != nil {
				c.plan.requests.int(numbers[2*i])
				c.plan.requests.int(numbers[2*i+1])
			}
		}
		if decides {
			c.plan.request(c.Names, charges, c.buf[first:])
		}
	}
	keys := len(c.ends)
	c.buf = w.appendID(c.buf)
	c.ends = append(c.ends, len(c.buf))
	c.buf = c.plan.append(c.buf)
	c.ends = append(c.ends, len(c.buf))
	// One block of memory for all texts. Pointers to them need none of their own.
	text, start := string(c.buf), 0
	c.texts = c.texts[:0]
	for _, end := range c.ends {
		c.texts = append(c.texts, text[start:end])
		start = end
	}
	c.args = append(c.args, "evalsha", &scripts.Decide, keys)
	for i := range keys {
		c.args = append(c.args, &c.texts[i])
	}
	c.now.text, c.now.yes = c.now.text[:0], false
	if w.Now != nil {
		c.now.text = strconv.AppendInt(c.now.text, w.Now(), 10)
	}
	c.args = append(c.args, &c.now, (*string)(&c.Op), &c.texts[keys], &c.texts[keys+1])
	c.Key = c.texts[0]
	return c
}
